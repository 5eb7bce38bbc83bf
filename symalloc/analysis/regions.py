"""Memory as the analyses see it: regions of roots, and the values that point to them.

A *root* is memory that one allocation reserves (a storage, a fresh tensor, a parameter); a *region* is a
stretch of a root: the root itself, a tensor on a storage, a view at an offset.

`must` and `may` say how sure an alias is, along a given path: a handle points to one of its `must` regions,
unless a function of unknown ownership returned its argument; then it is one of the `may` regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from symalloc.analysis.paths import EVERY_PATH, PathCondition
from symalloc.analysis.sets import NO_REGIONS, RegionSet, members, only_member, region_set
from symalloc.program.ir import Instruction, Operand, Var
from symalloc.program.record import from_fields
from symalloc.program.types import (
    DType,
    FunctionType,
    OpaqueType,
    ScalarType,
    ShapeType,
    StorageType,
    TensorType,
    TupleType,
    Type,
)
from symalloc.size.expr import ZERO, Expr, product


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


# -- making them --------------------------------------------------------------------------------------------


_MOST_PLACES = 64
"""The number of regions up to which a part is told apart from the whole."""


@lru_cache(maxsize=4096)
def byte_count(shape: tuple[Expr, ...], dtype: DType) -> Expr:
    """The bytes of a tensor, as TVM's planner counts them."""
    return product(shape) * dtype.itemsize


def known_bytes(shape: tuple[Expr, ...] | None, dtype: DType | None) -> Expr | None:
    """The bytes of a tensor, where its shape and element type are known."""
    return None if shape is None or dtype is None else byte_count(shape, dtype)


def sum_of(left: Expr | None, right: Expr | None) -> Expr | None:
    """The sum, where both are known."""
    return None if left is None or right is None else left + right


_TOLD_APART = dict.fromkeys((RegionKind.STORAGE, RegionKind.PHI, RegionKind.VIEW), NO_REGIONS)
_CONSTANT = Var("constant", OpaqueType())


class RegionMaker:
    """Keeps the regions made so far, the constants first.

    `of_kind` holds the sets of storages, phis and views, `defs` those that the current point makes and fills.
    `storage_vars` are the variables of opaque values that serve as storages.
    """

    def __init__(self, storage_vars: frozenset[Var] = frozenset()) -> None:
        self.storage_vars = storage_vars
        self.contents: dict[int, RegionSet] = {}
        self.regions: list[Region] = []
        self.of_kind = dict(_TOLD_APART)
        self.defs = NO_REGIONS
        made = self.add(RegionKind.CONSTANT, _CONSTANT, instruction=None, external=True)
        assert made == CONSTANTS.must

    def add(
        self,
        kind: RegionKind,
        var: Var,
        *,
        instruction: Instruction | None,
        parent: Region | None = None,
        offset: Expr | None = ZERO,
        nbytes: Expr | None = None,
        external: bool = False,
        path: PathCondition = EVERY_PATH,
        sources: tuple[Pointees, Pointees] | None = None,
        branch: int = -1,
    ) -> RegionSet:
        """Add a region; return the set of it alone."""
        index = len(self.regions)
        root, above = (index, None) if parent is None else (parent.root, parent.number)
        named = (index, kind, var.name, var, instruction, above, root)
        made = (*named, offset, nbytes, external, path, sources, branch)
        self.regions.append(from_fields(Region, made))
        one = RegionSet(1 << index)
        if kind in self.of_kind:
            self.of_kind[kind] |= one
        return one

    def fresh(
        self, kind: Type, var: Var, instruction: Instruction | None, *, external: bool = False
    ) -> AbstractValue:
        """New memory for a value of type `kind`, one region a leaf."""
        if isinstance(kind, TupleType):
            leaves = (self.fresh(field, var, instruction, external=external) for field in kind.fields)
            return TuplePointees(tuple(leaves))
        if isinstance(kind, ShapeType | ScalarType | FunctionType):
            return NO_POINTEES
        if isinstance(kind, StorageType) or (isinstance(kind, OpaqueType) and var in self.storage_vars):
            return Pointees(self.add(RegionKind.STORAGE, var, instruction=instruction, external=True))
        what = RegionKind.PARAMETER if external else RegionKind.FRESH
        nbytes = known_bytes(kind.shape, kind.dtype) if isinstance(kind, TensorType) else None
        made = self.add(what, var, instruction=instruction, external=external, nbytes=nbytes)
        if not external:
            self.defs |= made
        return Pointees(made)

    def content_of(self, storage: int) -> RegionSet:
        """The region of unknown place that stands for what functions write and read on a storage."""
        found = self.contents.get(storage)
        if found is None:
            parent = self.regions[storage]
            assert parent.var is not None
            found = self.contents[storage] = self.add(
                RegionKind.TENSOR,
                parent.var,
                parent=parent,
                instruction=parent.instruction,
                external=parent.external,
                offset=None,
            )
        return found

    def placed(
        self,
        kind: RegionKind,
        source: AbstractValue,
        instruction: Instruction,
        offset: Expr | None,
        nbytes: Expr | None,
    ) -> tuple[RegionSet, RegionSet]:
        """A region inside each region that `source` may be: (must, may).

        Where these are very many, `source` itself stands for its part.
        """
        alone = only_region(self.regions, source)
        if alone is not None:
            return self._part(kind, alone, instruction, offset, nbytes, alone.path), NO_REGIONS
        must = may = NO_REGIONS
        found = tuple(targets(self.regions, *pointees_of(source)))
        if len(found) > _MOST_PLACES:
            return pointees_of(source)
        for target in found:
            parent = self.regions[target.region]
            made = self._part(kind, parent, instruction, offset, nbytes, target.path)
            must, may = (must | made, may) if target.certain else (must, may | made)
        return must, may

    def _part(
        self,
        kind: RegionKind,
        parent: Region,
        instruction: Instruction,
        offset: Expr | None,
        nbytes: Expr | None,
        path: PathCondition,
    ) -> RegionSet:
        return self.add(
            kind,
            instruction.var,
            instruction=instruction,
            parent=parent,
            offset=sum_of(parent.offset, offset),
            nbytes=nbytes,
            external=parent.external,
            path=path,
        )

    def phi(
        self, then: AbstractValue, otherwise: AbstractValue, branch: int, instruction: Instruction
    ) -> AbstractValue:
        """The value of an If."""
        if isinstance(then, TuplePointees) and isinstance(otherwise, TuplePointees):
            pairs = zip_longest(then.items, otherwise.items, fillvalue=NO_POINTEES)
            return TuplePointees(tuple(self.phi(a, b, branch, instruction) for a, b in pairs))
        a, b = collapsed(then), collapsed(otherwise)
        offset = a.offset if a.offset == b.offset else None
        if (a.must, a.may) == (b.must, b.may):
            return Pointees(a.must, a.may, offset)
        one = self.add(
            RegionKind.PHI, instruction.var, instruction=instruction, sources=(a, b), branch=branch
        )
        return Pointees(one, NO_REGIONS, offset)

    def no_tensors(self, value: AbstractValue) -> AbstractValue:
        """`value` without the regions that are no storage; phis are left as they are."""
        must, may = pointees_of(value)
        tensors = region_set(i for i in members(must | may) if _is_tensor(self.regions[i]))
        return Pointees(must & ~tensors, may & ~tensors) if tensors else value

    def relations(self) -> tuple[Mapping[int, RegionSet], Mapping[int, RegionSet]]:
        """For each region its ancestors and its descendants, itself among both."""
        ancestors, descendants = _Lone(), _Lone()
        for region in self.regions:
            one, parent = RegionSet(1 << region.number), region.parent
            if parent is not None:
                ancestors[region.number] = one | ancestors[parent]
            while parent is not None:
                descendants[parent] |= one
                parent = self.regions[parent].parent
        return ancestors, descendants


class _Lone(dict[int, RegionSet]):
    """Sets of regions by number: where none is entered, the region alone."""

    def __missing__(self, number: int) -> RegionSet:
        return RegionSet(1 << number)


def _is_tensor(region: Region) -> bool:
    if region.kind in (RegionKind.STORAGE, RegionKind.PHI):
        return False
    if region.kind is RegionKind.CONSTANT:
        return True
    return region.nbytes is not None or (region.var is not None and isinstance(region.var.type, TensorType))
