"""Errors of the pool; their texts are meant for a person."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from symalloc.errors import SymallocError, UsageError

P = ParamSpec("P")
Answer = TypeVar("Answer")


class PoolError(SymallocError):
    """A pool refuses a request."""


class PoolUsageError(PoolError, UsageError):
    """An amount, an option or a trace makes no sense."""


def checked(check: Callable[P, Answer], *args: P.args, **named: P.kwargs) -> Answer:
    """The answer of a check of arguments; raises PoolUsageError where it raises UsageError."""
    try:
        return check(*args, **named)
    except UsageError as error:
        raise PoolUsageError(str(error)) from None


class BadFreeError(PoolError, ValueError):
    """A freed handle or address is no live block: freed before, never allocated, or inside a block."""


class OutOfMemoryError(PoolError, MemoryError):
    """An allocation does not fit under the limit, or in the address space, whatever is given back."""


class BoundsError(PoolError, IndexError):
    """A tensor would lie outside its storage, for some byte of it."""


class OverrunError(PoolError):
    """Memory beside a block was written; the text names the block and the byte."""
