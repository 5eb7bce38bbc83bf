"""A tuple whose items are worked out when one of them is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

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

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        return self.items == (other.items if isinstance(other, DeferredTuple) else other)

    def __hash__(self) -> int:
        return hash(self.items)

    def __repr__(self) -> str:
        return repr(self.items)

    def __reduce__(self) -> tuple[type[tuple[Item, ...]], tuple[tuple[Item, ...]]]:
        return tuple, (self.items,)
