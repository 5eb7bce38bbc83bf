"""The regions that every variable of a function points to, tuple field by tuple field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from symalloc.analysis.regions import (
    CONSTANTS,
    NO_POINTEES,
    AbstractValue,
    Consumed,
    Pointees,
    Region,
    Target,
    TuplePointees,
    leaves_of,
    pointees_of,
    resolve,
    targets,
)
from symalloc.analysis.sets import NO_REGIONS, RegionSet, members, only_member
from symalloc.analysis.summary import align
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.size.expr import Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class MayReturn:
    """A call of `name` whose result may be one of its arguments, that is one of `regions`."""

    name: str
    regions: RegionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PointsTo:
    """The regions of one function, and which of them each variable points to.

    `values` holds a value for every variable.  `defs[i]` are the regions that point i makes and fills.
    `ancestors[r]` are region r and what it is part of, `descendants[r]` region r and its parts.  `storages`,
    `phis` and `views` are the regions of those kinds, `constants` that of the constants with its parts.
    `parameters` holds the leaves of the parameters, `consumed` what in-place calls overwrite.  `contents_of`
    gives by storage the region that stands for what functions to which it was handed write and read there,
    somewhere.
    """

    cfg: ControlFlowGraph
    regions: Sequence[Region]
    values: Mapping[ir.Var, AbstractValue]
    defs: Sequence[RegionSet]
    ancestors: Sequence[RegionSet]
    descendants: Sequence[RegionSet]
    storages: RegionSet
    phis: RegionSet
    views: RegionSet
    constants: RegionSet
    result: AbstractValue
    parameters: tuple[Pointees, ...]
    may_returns: tuple[MayReturn, ...]
    contents_of: Mapping[int, RegionSet]
    consumed: tuple[Consumed, ...] = ()

    def value_of(self, operand: ir.Operand | None) -> AbstractValue:
        """The value of an operand; literals that are no tensors point to nothing."""
        if type(operand) is ir.Var:
            return self.values.get(operand, NO_POINTEES)
        return value_in(self.values, operand)

    def regions_of(self, operand: ir.Operand | None) -> RegionSet:
        """All that an operand may point to, phis replaced by what they may be."""
        must, may = pointees_of(self.value_of(operand))
        return self.resolve(must | may)

    def allocated(self, var: ir.Var) -> Region:
        """The region of a tensor that an AllocFresh made."""
        number = only_member(pointees_of(self.values[var])[0])
        assert number is not None, f"{var.name} is no allocation"
        return self.regions[number]

    def targets(self, must: RegionSet, may: RegionSet = NO_REGIONS) -> Iterator[Target]:
        """The real regions behind a set: phis taken apart."""
        return targets(self.regions, must, may)

    def targets_of(self, operand: ir.Operand | None) -> Iterator[Target]:
        """The real regions behind an operand."""
        return self.targets(*pointees_of(self.value_of(operand)))

    def result_targets(self) -> Iterator[Target]:
        """The real regions behind the result of the function."""
        return self.targets(*pointees_of(self.result))

    def resolve(self, numbers: RegionSet) -> RegionSet:
        """The set with every phi replaced by all that it may be."""
        return resolve(self.regions, numbers) if numbers & self.phis else numbers

    def roots(self, numbers: RegionSet) -> frozenset[int]:
        """The roots of all regions of a set, phis replaced by what they may be."""
        return frozenset(self.regions[number].root for number in members(self.resolve(numbers)))

    def content_of_storages(self, numbers: RegionSet) -> RegionSet:
        """The regions that stand for what functions do somewhere on the storages among `numbers`."""
        found, storages = NO_REGIONS, numbers & (self.storages | self.phis)
        for number in members(self.resolve(storages) & self.storages) if storages else ():
            found |= self.contents_of.get(number, NO_REGIONS)
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

    def offsets(self, operand: ir.Operand) -> Iterator[Expr]:
        """The byte offsets that the handles in `operand` may carry behind the pointer that is handed over.

        Each field and each branch counts; none is left out but where it is not known: behind a packed
        function that returns its argument.
        """
        value = self.value_of(operand)
        for leaf in (value,) if type(value) is Pointees else leaves_of(value):
            if leaf.offset is not None:
                yield leaf.offset
            else:
                yield from self.offsets_of(leaf)

    def argument_leaves(
        self, arguments: Sequence[ir.Operand], callee: ir.Function
    ) -> Iterator[tuple[ir.Operand, Pointees]]:
        """The leaves of the arguments of a call, in the order of those of the callee's parameters."""
        for argument, param in zip(arguments, callee.params, strict=False):
            yield from ((argument, leaf) for leaf in align(self.value_of(argument), param.type))

    def offsets_of(self, leaf: Pointees) -> Iterator[Expr]:
        """The byte offsets that one handle may carry."""
        pending, seen = [leaf], NO_REGIONS
        while pending:
            one = pending.pop()
            if one.offset is not None:
                yield one.offset
                continue
            phis = one.must & self.phis & ~seen
            seen |= phis
            for number in members(phis):
                pending.extend(self.regions[number].sources or ())


def value_in(values: Mapping[ir.Var, AbstractValue], operand: ir.Operand | None) -> AbstractValue:
    """The value of an operand, given those of variables."""
    if isinstance(operand, ir.Var):
        return values.get(operand, NO_POINTEES)
    if isinstance(operand, ir.TupleValue):
        return TuplePointees(tuple(value_in(values, item) for item in operand.items))
    if isinstance(operand, ir.ConstantTensor):
        return CONSTANTS
    return NO_POINTEES
