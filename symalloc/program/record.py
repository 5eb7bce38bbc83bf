"""Records that are made by the thousand, one for each instruction of a module."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar, dataclass_transform, overload

Record = TypeVar("Record")
Made = TypeVar("Made", bound=tuple[object, ...])


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(*, eq: bool = True, kw_only: bool = True) -> Callable[[type[Record]], type[Record]]:
    """A dataclass with slots that nobody changes: the type checker sees to that, and Python does not.

    A frozen one takes three times as long to make.
    """
    return dataclass(slots=True, eq=eq, unsafe_hash=eq, kw_only=kw_only)


def by_position(kind: type[Record]) -> Callable[..., Record]:
    """A function that makes records of `kind` from all of their fields in order, those of a base first: with
    keywords that takes five times as long.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type] # it is a dataclass
    stores = "".join(f"    made.{name} = {name}\n" for name in names)
    scope: dict[str, Any] = {"new": object.__new__, "kind": kind}
    exec(f"def make({', '.join(names)}):\n    made = new(kind)\n{stores}    return made\n", scope)
    make: Callable[..., Record] = scope["make"]
    return make


class _FromFields(Protocol):
    def __call__(self, kind: type[Made], fields: tuple[object, ...], /) -> Made: ...


from_fields: _FromFields = tuple.__new__
"""A NamedTuple from all of its fields in order, those with defaults too: as `kind(*fields)`, which takes four
times as long.
"""


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
