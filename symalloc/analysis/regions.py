"""Memory as the analyses see it: regions of roots, and the values that point to them.

A *root* is memory that one allocation reserves (a storage, a fresh tensor, a parameter); a *region* is a
stretch of a root: the root itself, a tensor on a storage, a view at an offset.  Sets of regions are
integers with one bit a region.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from symalloc.program.model import Instruction, Var
from symalloc.size.expr import ZERO, Expr

__all__ = [
    "EMPTY",
    "Cell",
    "Fields",
    "Kind",
    "Region",
    "Sides",
    "Target",
    "Value",
    "behind",
    "bits_of",
    "fold",
    "indices",
    "targets",
]

Sides: TypeAlias = frozenset[tuple[int, bool]]
"""The branches on which something is so: (index of the IF step, True for then)."""


class Kind(Enum):
    """What a region is."""

    STORAGE = "storage"  # raw bytes that tensors are placed on; its content is that of the tensors
    TENSOR = "tensor"  # a tensor placed on a storage
    FRESH = "fresh"  # memory that an operator or a callee made
    PARAMETER = "parameter"  # memory of the caller
    VIEW = "view"  # a part of another region
    CHOICE = "choice"  # no region: the value of an If, one thing or another


class Cell(NamedTuple):
    """What a value that is no tuple points to.

    `sure`: regions that it points to (on some path); `maybe`: regions that it points to only if a
    function of unknown ownership returns its argument.  `offset` is the byte offset that the handle
    carries into a kernel, None where unknown.
    """

    sure: int
    maybe: int
    offset: Expr | None = ZERO


class Fields(NamedTuple):
    """What a tuple points to, field by field."""

    items: tuple[Value, ...]


Value: TypeAlias = Cell | Fields

EMPTY = Cell(0, 0)


class Region(NamedTuple):
    """One region.

    `offset` counts bytes from the start of the root, `nbytes` its size; None where unknown.  `parent` is
    the storage of a tensor and the source of a view.  `given`: whether the memory comes from outside the
    function.  `sides` are the branches on which it is this memory at all.  `sources` are the two values
    of a CHOICE, whose IF step is `choice`.
    """

    number: int
    kind: Kind
    name: str
    var: Var | None
    instruction: Instruction | None
    parent: int | None
    root: int
    offset: Expr | None = ZERO
    nbytes: Expr | None = None
    given: bool = False
    sides: Sides = frozenset()
    sources: tuple[Cell, Cell] | None = None
    choice: int = -1


def indices(bits: int) -> Iterator[int]:
    """The members of a set of regions, in order."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def bits_of(value: Value) -> tuple[int, int]:
    """All that `value` points to, through every field: (sure, maybe)."""
    if type(value) is Cell:
        return value.sure, value.maybe
    sure = maybe = 0
    for cell in fold(value):
        sure |= cell.sure
        maybe |= cell.maybe
    return sure, maybe


def fold(value: Value) -> Iterator[Cell]:
    """The cells of `value` in order."""
    pending: list[Value] = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, Fields):
            pending.extend(reversed(current.items))
        else:
            yield current


class Target(NamedTuple):
    """A region that a set of regions stands for, on the branches `sides`; `certain` unless by doubtful
    ownership.
    """

    region: int
    sides: Sides
    certain: bool


_TAKEN_APART = 512
"""How many sets `targets` takes apart by branch before it gives up telling the branches apart."""


def targets(regions: Sequence[Region], sure: int, maybe: int = 0) -> Iterator[Target]:
    """The real regions behind a set: choices taken apart.

    Choices among choices can have more combinations of branches than anybody could go through; from some
    point on regions come without the branches that they are on, which loses precision and nothing else.
    """
    if not maybe and sure and not sure & (sure - 1):
        only = regions[sure.bit_length() - 1]
        if only.sources is None:
            yield Target(only.number, only.sides, True)
            return
    pending: list[tuple[int, Sides, bool]] = [(maybe, frozenset(), False), (sure, frozenset(), True)]
    for _ in range(_TAKEN_APART):
        if not pending:
            return
        bits, sides, certain = pending.pop()
        for index in indices(bits):
            region = regions[index]
            if region.sources is None:
                yield Target(region=index, sides=sides | region.sides, certain=certain)
                continue
            for source, then in zip(region.sources, (True, False), strict=True):
                inner = sides | {(region.choice, then)}
                pending.append((source.maybe, inner, False))
                pending.append((source.sure, inner, certain))
    for bits, _, certain in pending:
        for index in indices(behind(regions, bits)):
            yield Target(index, regions[index].sides, certain)


def behind(regions: Sequence[Region], bits: int) -> int:
    """`bits` with every choice replaced by all that it may be, on whatever branch."""
    found = seen = 0
    pending = [bits]
    while pending:
        fresh = pending.pop() & ~seen
        seen |= fresh
        for index in indices(fresh):
            sources = regions[index].sources
            if sources is None:
                found |= 1 << index
            else:
                pending.extend(cell.sure | cell.maybe for cell in sources)
    return found
