"""Memory as the analyses see it: regions of roots, and the values that point to them.

A *root* is memory that one allocation reserves (a storage, a fresh tensor, a parameter); a *region* is a
stretch of a root: the root itself, a tensor on a storage, a view at an offset.

`must` and `may` say how sure an alias is, along a given path: a handle points to one of its `must` regions,
unless a function of unknown ownership returned its argument; then it is one of the `may` regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from symalloc.analysis.paths import PathCondition
from symalloc.analysis.sets import NO_REGIONS, RegionSet, members, only_member
from symalloc.program.ir import Instruction, Operand, Var
from symalloc.program.record import from_fields
from symalloc.size.expr import ZERO, Expr


class RegionKind(StrEnum):
    """The kinds of regions."""

    STORAGE = "storage"  # raw bytes that tensors are placed on; its content is that of the tensors
    TENSOR = "tensor"  # a tensor placed on a storage
    FRESH = "fresh"  # memory that an operator or a callee made
    PARAMETER = "parameter"  # memory of the caller
    CONSTANT = "constant"  # all constants of the executable, which are not told apart
    VIEW = "view"  # a part of another region
    PHI = "phi"  # no memory: the value of an If, one thing or another


class Pointees(NamedTuple):
    """The regions that a value, itself no tuple, points to.

    `offset` is the byte offset that the handle carries into a kernel, None where unknown.
    """

    must: RegionSet
    may: RegionSet = NO_REGIONS
    offset: Expr | None = ZERO


class TuplePointees(NamedTuple):
    """The regions that a tuple points to, field by field."""

    items: tuple[AbstractValue, ...]


AbstractValue: TypeAlias = Pointees | TuplePointees

NO_POINTEES = Pointees(NO_REGIONS)
CONSTANTS = Pointees(RegionSet(1))
"""What a constant points to: region 0 of every function, the only one of its kind."""


class Region(NamedTuple):
    """One region.

    `offset` counts bytes from the start of the root, `nbytes` its size; None where unknown.  `parent` is
    the storage of a tensor and the source of a view.  `external`: the memory comes from outside the function.
    `path` are the branches on which it is this memory at all.  `sources` are the two values of a PHI, and
    `branch` the BRANCH that decides between them.
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


def pointees_of(value: AbstractValue) -> tuple[RegionSet, RegionSet]:
    """All that `value` points to, through every field: (must, may)."""
    if type(value) is Pointees:
        return value.must, value.may
    must = may = NO_REGIONS
    for leaf in leaves_of(value):
        must |= leaf.must
        may |= leaf.may
    return must, may


def leaves_of(value: AbstractValue) -> Iterator[Pointees]:
    """The leaves of `value`, those of tuple fields in order."""
    pending: list[AbstractValue] = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, TuplePointees):
            pending.extend(reversed(current.items))
        else:
            yield current


def collapsed(value: AbstractValue) -> Pointees:
    """`value` as one handle; the fields of a tuple are no longer told apart."""
    return value if isinstance(value, Pointees) else Pointees(*pointees_of(value), None)


class Consumed(NamedTuple):
    """An in-place call at `point`, its own or its callee's, overwrites `operand`, which points to `leaf`."""

    point: int
    operand: Operand
    leaf: Pointees


class Target(NamedTuple):
    """A real region that a set of regions stands for on the branches `path`.

    `certain` unless it takes a function of unknown ownership to return its argument.
    """

    region: int
    path: PathCondition
    certain: bool


def only_region(regions: Sequence[Region], value: AbstractValue) -> Region | None:
    """The one real region that a value is for sure, whatever branches are taken; None for any other value."""
    if type(value) is not Pointees or value.may:
        return None
    only = only_member(value.must)
    region = None if only is None else regions[only]
    return None if region is None or region.sources is not None else region


_MOST_SETS = 512
"""The number of sets that `targets` takes apart by branch before it gives up telling the branches apart."""


def targets(regions: Sequence[Region], must: RegionSet, may: RegionSet = NO_REGIONS) -> Iterator[Target]:
    """The real regions behind a set: phis taken apart.

    Phis of phis can have more combinations of branches than anybody could go through; from some point on
    regions come without the branches that they are on, which loses precision and nothing else.
    """
    only = None if may else only_member(must)
    if only is not None and regions[only].sources is None:
        yield from_fields(Target, (only, regions[only].path, True))
        return
    everywhere: PathCondition = frozenset()
    pending = [(may, everywhere, False), (must, everywhere, True)]
    for _ in range(_MOST_SETS):
        if not pending:
            return
        numbers, path, certain = pending.pop()
        for number in members(numbers):
            region = regions[number]
            if region.sources is None:
                yield Target(number, path | region.path, certain)
                continue
            for source, then in zip(region.sources, (True, False), strict=True):
                inner = path | {(region.branch, then)}
                pending.append((source.may, inner, False))
                pending.append((source.must, inner, certain))
    for numbers, _, certain in pending:
        for number in members(resolve(regions, numbers)):
            yield Target(number, regions[number].path, certain)


def resolve(regions: Sequence[Region], numbers: RegionSet) -> RegionSet:
    """The set with every phi replaced by all that it may be, on whatever branch."""
    found = seen = NO_REGIONS
    pending = [numbers]
    while pending:
        fresh = pending.pop() & ~seen
        seen |= fresh
        for number in members(fresh):
            sources = regions[number].sources
            if sources is None:
                found |= RegionSet(1 << number)
            else:
                pending.extend(source.must | source.may for source in sources)
    return found
