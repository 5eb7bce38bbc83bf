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

PathCondition: TypeAlias = frozenset[tuple[int, bool]]
"""The branches on which something is so: (index of the IF step, True for then)."""


class RegionKind(Enum):
    """What a region is."""

    STORAGE = "storage"  # raw bytes that tensors are placed on; its content is that of the tensors
    TENSOR = "tensor"  # a tensor placed on a storage
    FRESH = "fresh"  # memory that an operator or a callee made
    PARAMETER = "parameter"  # memory of the caller
    VIEW = "view"  # a part of another region
    PHI = "phi"  # no region: the value of an If, one thing or another


class Pointees(NamedTuple):
    """What a value that is no tuple points to.

    `must`: regions that it points to (on some path); `may`: regions that it points to only if a
    function of unknown ownership returns its argument.  `offset` is the byte offset that the handle
    carries into a kernel, None where unknown.
    """

    must: int
    may: int
    offset: Expr | None = ZERO


class TuplePointees(NamedTuple):
    """What a tuple points to, field by field."""

    items: tuple[AbstractValue, ...]


AbstractValue: TypeAlias = Pointees | TuplePointees

EMPTY = Pointees(0, 0)


class Region(NamedTuple):
    """One region.

    `offset` counts bytes from the start of the root, `nbytes` its size; None where unknown.  `parent` is
    the storage of a tensor and the source of a view.  `external`: whether the memory comes from outside the
    function.  `path` are the branches on which it is this memory at all.  `sources` are the two values
    of a PHI, decided at the point `branch`.
    """

    number: int
    kind: RegionKind
    name: str
    var: Var | None
    instruction: Instruction | None
    parent: int | None
    root: int
    offset: Expr | None = ZERO
    nbytes: Expr | None = None
    external: bool = False
    path: PathCondition = frozenset()
    sources: tuple[Pointees, Pointees] | None = None
    branch: int = -1


def members(bits: int) -> Iterator[int]:
    """The members of a set of regions, in order."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def pointees_of(value: AbstractValue) -> tuple[int, int]:
    """All that `value` points to, through every field: (must, may)."""
    if type(value) is Pointees:
        return value.must, value.may
    must = may = 0
    for cell in leaves_of(value):
        must |= cell.must
        may |= cell.may
    return must, may


def leaves_of(value: AbstractValue) -> Iterator[Pointees]:
    """The cells of `value` in order."""
    pending: list[AbstractValue] = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, TuplePointees):
            pending.extend(reversed(current.items))
        else:
            yield current


class Target(NamedTuple):
    """A region that a set of regions stands for, on the branches `path`; `certain` unless by doubtful
    ownership.
    """

    region: int
    path: PathCondition
    certain: bool


_TAKEN_APART = 512
"""How many sets `targets` takes apart by branch before it gives up telling the branches apart."""


def targets(regions: Sequence[Region], must: int, may: int = 0) -> Iterator[Target]:
    """The real regions behind a set: choices taken apart.

    Choices among choices can have more combinations of branches than anybody could go through; from some
    point on regions come without the branches that they are on, which loses precision and nothing else.
    """
    if not may and must and not must & (must - 1):
        only = regions[must.bit_length() - 1]
        if only.sources is None:
            yield Target(only.number, only.path, True)
            return
    pending: list[tuple[int, PathCondition, bool]] = [(may, frozenset(), False), (must, frozenset(), True)]
    for _ in range(_TAKEN_APART):
        if not pending:
            return
        bits, sides, certain = pending.pop()
        for index in members(bits):
            region = regions[index]
            if region.sources is None:
                yield Target(region=index, path=sides | region.path, certain=certain)
                continue
            for source, then in zip(region.sources, (True, False), strict=True):
                inner = sides | {(region.branch, then)}
                pending.append((source.may, inner, False))
                pending.append((source.must, inner, certain))
    for bits, _, certain in pending:
        for index in members(behind(regions, bits)):
            yield Target(index, regions[index].path, certain)


def behind(regions: Sequence[Region], bits: int) -> int:
    """`bits` with every choice replaced by all that it may be, on whatever branch."""
    found = seen = 0
    pending = [bits]
    while pending:
        fresh = pending.pop() & ~seen
        seen |= fresh
        for index in members(fresh):
            sources = regions[index].sources
            if sources is None:
                found |= 1 << index
            else:
                pending.extend(cell.must | cell.may for cell in sources)
    return found
