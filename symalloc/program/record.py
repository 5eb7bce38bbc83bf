"""Records that are made by the thousand, one for each instruction of a module."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

Record = TypeVar("Record")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(*, eq: bool = True, kw_only: bool = True) -> Callable[[type[Record]], type[Record]]:
    """A dataclass with slots that nobody changes: the type checker sees to that, and Python does not.

    A frozen one takes three times as long to make.
    """
    return dataclass(slots=True, eq=eq, unsafe_hash=eq, kw_only=kw_only)


# -- collections of garbage --------------------------------------------------------------------------------


@contextmanager
def no_collections(*, acyclic: bool = False) -> Iterator[None]:
    """Runs no collections inside: a lint makes some 100,000 objects that all stay in use.

    Where nothing inside makes cycles (`acyclic`), only collections of all objects look at what was made: the
    next one would take a tenth of the time of what ran inside, and find nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if acyclic and not gc.get_freeze_count():  # else what a program has frozen would thaw
                gc.freeze()
                gc.unfreeze()  # all that was frozen counts as old from here on
            gc.enable()


# -- late tuples -------------------------------------------------------------------------------------------


Item = TypeVar("Item")


class DeferredTuple(Sequence[Item]):
    """The tuple that `make` returns, which is called once; it pickles as that tuple."""

    __slots__ = ("_items", "_make")

    def __init__(self, make: Callable[[], tuple[Item, ...]]) -> None:
        self._make: Callable[[], tuple[Item, ...]] | None = make
        self._items: tuple[Item, ...] = ()

    @property
    def items(self) -> tuple[Item, ...]:
        """The items as a plain tuple."""
        if self._make is not None:
            self._items = self._make()
            self._make = None
        return self._items

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        return self.items == (other.items if isinstance(other, DeferredTuple) else other)

    def __hash__(self) -> int:
        return hash(self.items)

    def __reduce__(self) -> tuple[type[tuple[Item, ...]], tuple[tuple[Item, ...]]]:
        return tuple, (self.items,)
