"""Callbacks that live as long as the Python object of their pool."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any
from weakref import ref

OOM = 0  # the number of the callback for want of memory


class CallbackTable:
    """The callbacks of one pool.

    Native code gets a function that finds them here and does not keep them: what a callback refers to, its
    own pool too, is then seen by Python's garbage collector.
    """

    __slots__ = ("__weakref__", "_callbacks", "_numbers")

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[..., Any]] = {}
        self._numbers = count(1)

    def add(
        self, callback: Callable[..., Any], otherwise: object, number: int | None = None
    ) -> tuple[int, Callable[..., Any]]:
        """Keep `callback`, in place of what had its number; the number, and the function that calls it.
        Once it is gone, that answers `otherwise`.
        """
        table = ref(self)
        key = next(self._numbers) if number is None else number
        self._callbacks[key] = callback

        def call(*arguments: object) -> object:
            here = table()
            found = None if here is None else here._callbacks.get(key)
            return otherwise if found is None else found(*arguments)

        return key, call

    def remove(self, number: int) -> None:
        """Let go of a callback, if it is there."""
        self._callbacks.pop(number, None)

    def clear(self) -> None:
        """Let go of all."""
        self._callbacks.clear()
