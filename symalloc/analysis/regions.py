"""Memory as the analyses see it: regions of roots, and the values that point to them.

A *root* is memory that one allocation reserves (a storage, a fresh tensor, a parameter); a *region* is a
stretch of a root: the root itself, a tensor on a storage, a view at an offset.

`must` and `may` say how sure an alias is, along a given path: a handle points to one of its `must` regions,
unless a function of unknown ownership returned its argument; then it is one of the `may` regions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from symalloc.analysis.sets import NO_LEAVES, NO_REGIONS, LeafSet, RegionSet, members, only_member
from symalloc.program.control_flow import EVERY_PATH, ControlFlowGraph, PathCondition
from symalloc.program.ir import ConstantTensor, Function, Instruction, Operand, TupleValue, Var
from symalloc.program.types import TupleType, Type
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
    var: Var
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


def leaves_of(value: AbstractValue) -> Sequence[Pointees]:
    """The leaves of `value`, those of tuple fields in order."""
    if type(value) is Pointees:
        return (value,)
    found: list[Pointees] = []
    pending: list[AbstractValue] = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, TuplePointees):
            pending.extend(reversed(current.items))
        else:
            found.append(current)
    return found


def union_of(leaves: Sequence[Pointees], numbers: LeafSet) -> tuple[RegionSet, RegionSet]:
    """All that those of the leaves with these numbers point to: (must, may)."""
    return pointees_of(
        TuplePointees(tuple(leaves[number] for number in members(numbers) if number < len(leaves)))
    )


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


def sum_of(left: Expr | None, right: Expr | None) -> Expr | None:
    """The sum, where both are known."""
    return None if left is None or right is None else left + right


def align(value: AbstractValue, kind: Type) -> tuple[Pointees, ...]:
    """The leaves of `value`, one for each leaf of `kind`.

    A tuple that is not known by field stands for each of its leaves.
    """
    if not isinstance(kind, TupleType):
        return (collapsed(value),)
    if isinstance(value, TuplePointees) and len(value.items) == len(kind.fields):
        pairs = zip(value.items, kind.fields, strict=True)
        return tuple(leaf for item, field in pairs for leaf in align(item, field))
    whole = collapsed(value)
    return tuple(leaf for field in kind.fields for leaf in align(whole, field))


# -- summaries of functions: the leaves of parameters, tuple fields taken apart, are numbered in order ------


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSummary:
    """One leaf of a result: the parameter leaves that it may be, and whether it may be `fresh` memory.

    `constant`: it may be a constant.  `storage` is its size in bytes where it is a storage of constant size.
    `filled` unless it is new memory that nothing has written.  `offset` is the byte offset that the handle
    carries, beyond that of a parameter that it is; None where unknown.
    """

    must: LeafSet = NO_LEAVES
    may: LeafSet = NO_LEAVES
    fresh: bool = True
    constant: bool = False
    storage: Expr | None = None
    filled: bool = True
    offset: Expr | None = ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSummary:
    """The effect of a function on its caller's memory.

    `results` holds an entry for each leaf of the result, in order; `reads` and `writes` are the parameter
    leaves read and written, other than by returning them, `captures` those that something may hold on to
    behind the call, other than as a result, `consumes` those that an in-place call overwrites, and
    `ignores_offset` those whose byte offset something in the function ignores or refuses.  `needs` are those
    whose content it reads before it writes any of it.
    """

    results: tuple[ResultSummary, ...] = ()
    reads: LeafSet = NO_LEAVES
    writes: LeafSet = NO_LEAVES
    may_writes: LeafSet = NO_LEAVES
    captures: LeafSet = NO_LEAVES
    consumes: LeafSet = NO_LEAVES
    ignores_offset: LeafSet = NO_LEAVES
    needs: LeafSet = NO_LEAVES

    @property
    def updated_results(self) -> tuple[ResultSummary, ...]:
        """The results, where what is overwritten in place counts as fresh memory."""
        if not self.consumes:
            return self.results
        kept = ~self.consumes
        return tuple(
            replace(
                result,
                must=result.must & kept,
                may=result.may & kept,
                fresh=result.fresh or bool((result.must | result.may) & self.consumes),
            )
            for result in self.results
        )


NO_EFFECTS = FunctionSummary()


# -- the regions of one function -----------------------------------------------------------------------------


_MOST_SETS = 512
"""The number of sets that `targets` takes apart by branch before it gives up telling the branches apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MayReturn:
    """A call of `name` whose result may be one of its arguments, that is one of `regions`."""

    name: str
    regions: RegionSet


class _Related(dict[int, RegionSet]):
    """Sets of regions by number: where none is entered, the region alone."""

    def __missing__(self, number: int) -> RegionSet:
        return RegionSet(1 << number)


@dataclass(slots=True, kw_only=True)
class PointsTo:
    """The regions of one function, the constants first, and which of them each variable points to.

    `values` holds the values of variables; those that point to nothing may be left out.  `defs` are the
    regions that a point makes and fills, by its number.  `ancestors[r]` are region r and what it is part of,
    `descendants[r]` region r and its parts.  `storages`, `phis` and `views` are the regions of those kinds.
    `parameters` holds the leaves of the parameters, `consumed` what in-place calls overwrite.  `contents_of`
    gives by storage the region that stands for what functions to which it was handed write and read there,
    somewhere.
    """

    cfg: ControlFlowGraph
    regions: list[Region] = field(default_factory=list)
    values: dict[Var, AbstractValue] = field(default_factory=dict)
    defs: dict[int, RegionSet] = field(default_factory=dict)
    ancestors: dict[int, RegionSet] = field(default_factory=_Related)
    descendants: dict[int, RegionSet] = field(default_factory=_Related)
    storages: RegionSet = NO_REGIONS
    phis: RegionSet = NO_REGIONS
    views: RegionSet = NO_REGIONS
    parameters: tuple[Pointees, ...] = ()
    may_returns: list[MayReturn] = field(default_factory=list)
    contents_of: dict[int, RegionSet] = field(default_factory=dict)
    consumed: list[Consumed] = field(default_factory=list)
    _targets: dict[tuple[RegionSet, RegionSet], Sequence[Target]] = field(default_factory=dict)

    @property
    def constants(self) -> RegionSet:
        """The constants, with their parts."""
        return self.descendants[0]

    @property
    def given(self) -> RegionSet:
        """The memory of the parameters."""
        return pointees_of(TuplePointees(self.parameters))[0]

    @property
    def result(self) -> AbstractValue:
        """The value of the function's result."""
        return self.value_of(self.cfg.function.body.result)

    def value_of(self, operand: Operand | None) -> AbstractValue:
        """The value of an operand; literals that are no tensors point to nothing."""
        if type(operand) is Var:
            return self.values.get(operand, NO_POINTEES)
        if isinstance(operand, TupleValue):
            return TuplePointees(tuple(map(self.value_of, operand.items)))
        return CONSTANTS if isinstance(operand, ConstantTensor) else NO_POINTEES

    def pointees(self, operands: Iterable[Operand | None]) -> tuple[RegionSet, RegionSet]:
        """All that operands point to: (must, may)."""
        return pointees_of(TuplePointees(tuple(map(self.value_of, operands))))

    def regions_of(self, operand: Operand | None) -> RegionSet:
        """All that an operand may point to, phis replaced by what they may be."""
        must, may = pointees_of(self.value_of(operand))
        return self.resolve(must | may)

    def allocated(self, var: Var) -> Region:
        """The region of a tensor that an AllocFresh made."""
        number = only_member(pointees_of(self.values[var])[0])
        assert number is not None, f"{var.name} is no allocation"
        return self.regions[number]

    def only_region(self, value: AbstractValue | None) -> Region | None:
        """The one real region that a value is for sure, whatever branches are taken; None for any other."""
        if type(value) is not Pointees or value.may:
            return None
        only = only_member(value.must)
        region = None if only is None else self.regions[only]
        return None if region is None or region.sources is not None else region

    def targets(self, must: RegionSet, may: RegionSet = NO_REGIONS) -> Sequence[Target]:
        """The real regions behind a set: phis taken apart.

        Phis of phis can have more combinations of branches than anybody could go through; from some point on
        regions come without the branches that they are on, which loses precision and nothing else.
        """
        found = self._targets.get((must, may))
        if found is None:
            alone = self.only_region(Pointees(must, may))
            only = None if alone is None else Target(alone.number, alone.path, certain=True)
            found = [*self._taken_apart(must, may)] if only is None else (only,)
            self._targets[must, may] = found
        return found

    def _taken_apart(self, must: RegionSet, may: RegionSet) -> Iterator[Target]:
        pending = [(may, EVERY_PATH, False), (must, EVERY_PATH, True)]
        for _ in range(_MOST_SETS):
            if not pending:
                return
            numbers, path, certain = pending.pop()
            for number in members(numbers) if numbers else ():
                region = self.regions[number]
                if region.sources is None:
                    yield Target(number, path | region.path, certain)
                    continue
                for source, then in zip(region.sources, (True, False), strict=True):
                    inner = path | {(region.branch, then)}
                    pending.append((source.may, inner, False))
                    pending.append((source.must, inner, certain))
        for numbers, _, certain in pending:
            for number in members(self.resolve(numbers)):
                yield Target(number, self.regions[number].path, certain)

    def targets_of(self, operand: Operand | None) -> Sequence[Target]:
        """The real regions behind an operand."""
        return self.targets(*pointees_of(self.value_of(operand)))

    def result_targets(self) -> Sequence[Target]:
        """The real regions behind the result of the function."""
        return self.targets(*pointees_of(self.result))

    def with_choices(self, numbers: RegionSet) -> RegionSet:
        """The set with all that every phi in it may be, on whatever branch, phis among those, too."""
        found, seen = numbers, NO_REGIONS
        while pending := found & self.phis & ~seen:
            seen |= pending
            for number in members(pending):
                for source in self.regions[number].sources or ():
                    found |= source.must | source.may
        return found

    def resolve(self, numbers: RegionSet) -> RegionSet:
        """The set with every phi replaced by all that it may be, on whatever branch."""
        return self.with_choices(numbers) & ~self.phis

    def roots(self, numbers: RegionSet) -> frozenset[int]:
        """The roots of all regions of a set, phis replaced by what they may be."""
        return frozenset(self.regions[number].root for number in members(self.resolve(numbers)))

    def content_of_storages(self, numbers: RegionSet) -> RegionSet:
        """The regions that stand for what functions do somewhere on the storages among `numbers`."""
        found, storages = NO_REGIONS, numbers & (self.storages | self.phis)
        for number in members(self.resolve(storages) & self.storages) if storages else ():
            found |= self.contents_of.get(number, NO_REGIONS)
        return found

    def family(self, numbers: RegionSet) -> RegionSet:
        """Regions, phis replaced by what they may be, with their parts and what they are parts of."""
        found = numbers = self.resolve(numbers)
        for number in members(numbers) if self.views or self.storages else ():
            found |= self.ancestors[number] | self.descendants[number]
        return found

    def contents(self, numbers: RegionSet) -> RegionSet:
        """The regions whose bytes are read when those of the set are: they and their parts.

        Storages hold none.
        """
        numbers &= ~self.storages
        if not self.views:
            return numbers
        whole = numbers
        for number in members(numbers):
            whole |= self.descendants[number]
        return whole

    def offsets(self, operand: Operand) -> Sequence[Expr]:
        """The byte offsets that the handles in `operand` may carry behind the pointer that is handed over.

        Each field and each branch counts; none is left out but where it is not known: behind a packed
        function that returns its argument.
        """
        return [offset for leaf in leaves_of(self.value_of(operand)) for offset in self.offsets_of(leaf)]

    def argument_leaves(
        self, arguments: Sequence[Operand], callee: Function
    ) -> Iterator[tuple[Operand, Pointees]]:
        """The leaves of the arguments of a call, in the order of those of the callee's parameters."""
        for argument, param in zip(arguments, callee.params, strict=False):
            yield from ((argument, leaf) for leaf in align(self.value_of(argument), param.type))

    def offsets_of(self, leaf: Pointees) -> Sequence[Expr]:
        """The byte offsets that one handle may carry."""
        if leaf.offset is not None:
            return (leaf.offset,)
        found: list[Expr] = []
        pending, seen = [leaf], NO_REGIONS
        while pending:
            one = pending.pop()
            if one.offset is not None:
                found.append(one.offset)
                continue
            phis = one.must & self.phis & ~seen
            seen |= phis
            for number in members(phis):
                pending.extend(self.regions[number].sources or ())
        return found
