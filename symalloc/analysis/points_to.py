"""Points-to analysis: the regions that every variable of a function points to, tuple field by tuple field.

One pass over the program points: a variable is bound once, so its value is known when it is used.  The value
of an If is a PHI of what its two blocks yield; analyses that know which branch they are on take it apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symalloc.analysis.region_maker import RegionMaker, known_bytes, sum_of
from symalloc.analysis.regions import (
    CONSTANTS,
    NO_POINTEES,
    AbstractValue,
    Pointees,
    Region,
    RegionKind,
    Target,
    TuplePointees,
    collapsed,
    leaves_of,
    pointees_of,
    resolve,
    targets,
)
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members, only_member
from symalloc.analysis.storage_variables import storage_variables
from symalloc.analysis.summary import FunctionSummary, ResultSummary, align
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph, PointKind
from symalloc.program.types import TupleType, Type
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
    `parameters` holds the leaves of the parameters.  `contents_of` gives by storage the region that stands
    for what functions to which it was handed write and read there, somewhere.
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

    def value_of(self, operand: ir.Operand | None) -> AbstractValue:
        """The value of an operand; literals that are no tensors point to nothing."""
        if type(operand) is ir.Var:
            return self.values.get(operand, NO_POINTEES)
        return _value_of(self.values, operand)

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
        self, call: ir.CallFunction, callee: ir.Function
    ) -> Iterator[tuple[ir.Operand, Pointees]]:
        """The leaves of a call's arguments, in the order of those of the callee's parameters."""
        for argument, param in zip(call.arguments, callee.params, strict=False):
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


def _value_of(values: Mapping[ir.Var, AbstractValue], operand: ir.Operand | None) -> AbstractValue:
    if isinstance(operand, ir.Var):
        return values.get(operand, NO_POINTEES)
    if isinstance(operand, ir.TupleValue):
        return TuplePointees(tuple(_value_of(values, item) for item in operand.items))
    if isinstance(operand, ir.ConstantTensor):
        return CONSTANTS
    return NO_POINTEES


# -- the analysis ------------------------------------------------------------------------------------------


def find_points_to(
    cfg: ControlFlowGraph,
    summaries: Mapping[str, FunctionSummary],
    parameters: Mapping[str, tuple[Type, ...]],
) -> PointsTo:
    """Analyse one function, given the summaries of its callees and the types of their parameters."""
    return _PointsToBuilder(cfg, summaries, parameters).build()


class _PointsToBuilder(RegionMaker):
    """Binds variable after variable."""

    def __init__(
        self,
        cfg: ControlFlowGraph,
        summaries: Mapping[str, FunctionSummary],
        parameters: Mapping[str, tuple[Type, ...]],
    ) -> None:
        super().__init__(storage_variables(cfg))
        self.cfg, self.summaries, self.parameters = cfg, summaries, parameters
        self.values: dict[ir.Var, AbstractValue] = {}
        self.may_returns: list[MayReturn] = []

    def build(self) -> PointsTo:
        params = self.cfg.function.params
        for param in params:
            self.values[param] = self.fresh(param.type, param, None, external=True)
        defs = [self.point(index) for index in range(len(self.cfg.points))]
        ancestors, descendants = self.relations()
        return PointsTo(
            cfg=self.cfg,
            regions=tuple(self.regions),
            values=self.values,
            defs=defs,
            ancestors=ancestors,
            descendants=descendants,
            storages=self.of_kind[RegionKind.STORAGE],
            phis=self.of_kind[RegionKind.PHI],
            views=self.of_kind[RegionKind.VIEW],
            constants=descendants[0],
            result=self.value(self.cfg.points[-1].operand),
            parameters=tuple(leaf for param in params for leaf in align(self.values[param], param.type)),
            may_returns=tuple(self.may_returns),
            contents_of=self.contents,
        )

    def point(self, index: int) -> RegionSet:
        """Bind what point `index` binds; return the regions that it makes and fills."""
        point, self.defs = self.cfg.points[index], NO_REGIONS
        instruction = point.instruction
        if instruction is None:
            return NO_REGIONS
        if point.kind is PointKind.INSTRUCTION:
            transfer = _TRANSFER.get(type(instruction))
            self.values[instruction.var] = NO_POINTEES if transfer is None else transfer(self, instruction)
        elif point.kind is PointKind.JOIN:
            then = self.value(self.cfg.points[self.cfg.joins[point.branch][0]].operand)
            otherwise = self.value(point.operand)
            self.values[instruction.var] = self.phi(then, otherwise, point.branch, instruction)
        return self.defs

    def value(self, operand: ir.Operand | None) -> AbstractValue:
        return _value_of(self.values, operand)

    # -- instructions --------------------------------------------------------------------------------------

    def alloc_storage(self, made: ir.AllocStorage) -> AbstractValue:
        return Pointees(self.add(RegionKind.STORAGE, made.var, instruction=made, nbytes=made.size))

    def alloc_tensor(self, made: ir.AllocTensor) -> AbstractValue:
        nbytes = known_bytes(made.shape, made.dtype)
        source = self.value(made.storage)
        if type(source) is not Pointees or (source.must | source.may) & ~self.of_kind[RegionKind.STORAGE]:
            source = self.no_tensors(source)
        must, may = self.placed(RegionKind.TENSOR, source, made, made.offset, nbytes)
        if not must and not may:
            must = self.add(RegionKind.FRESH, made.var, instruction=made, nbytes=nbytes)
        return Pointees(must, may, made.offset)

    def alloc_fresh(self, made: ir.AllocFresh) -> AbstractValue:
        nbytes = known_bytes(made.shape, made.dtype)
        return Pointees(self.add(RegionKind.FRESH, made.var, instruction=made, nbytes=nbytes))

    def view(self, view: ir.View) -> AbstractValue:
        source = collapsed(self.value(view.source))
        if view.kind == "ensure_zero_offset":
            return Pointees(source.must, source.may)
        if view.kind == "reshape":
            return source
        nbytes = known_bytes(view.shape, view.dtype)
        must, may = self.placed(RegionKind.VIEW, source, view, view.offset, nbytes)
        return Pointees(must, may, sum_of(source.offset, view.offset))

    def take_field(self, instruction: ir.TakeField) -> AbstractValue:
        source = self.value(instruction.source)
        if isinstance(source, Pointees):
            return source
        return source.items[instruction.index] if 0 <= instruction.index < len(source.items) else NO_POINTEES

    def call_tir(self, call: ir.CallTIR) -> AbstractValue:
        fields: list[AbstractValue] = []
        for index, output in enumerate(call.outputs):
            donor = call.inplace[index] if index < len(call.inplace) else None
            if donor is not None and 0 <= donor < len(call.inputs):
                fields.append(self.value(call.inputs[donor]))
            else:
                fields.append(self.fresh(output, call.var, call))
        if not fields:
            return self.fresh(call.var.type, call.var, call)
        return TuplePointees(tuple(fields)) if isinstance(call.var.type, TupleType) else fields[0]

    def call_packed(self, call: ir.CallPacked) -> AbstractValue:
        given = self.tensors_of(call.arguments)
        if call.ownership is ir.Ownership.FRESH:
            return self.fresh(call.var.type, call.var, call)
        if call.ownership is ir.Ownership.ARGUMENT:
            return Pointees(*given, None)
        return self.may_return(call, call.name, call.arguments)

    def call_operator(self, call: ir.CallOperator) -> AbstractValue:
        return self.fresh(call.var.type, call.var, call)

    def not_understood(self, construct: ir.NotUnderstood) -> AbstractValue:
        return self.may_return(construct, construct.what, construct.reads)

    def call_function(self, call: ir.CallFunction) -> AbstractValue:
        summary, kinds = self.summaries.get(call.name), self.parameters.get(call.name)
        if summary is None or kinds is None:
            return self.may_return(call, call.name, call.arguments)
        pairs = zip(call.arguments, kinds, strict=False)
        leaves = [leaf for argument, kind in pairs for leaf in align(self.value(argument), kind)]
        for leaf in leaves:
            self.handed_over(leaf.must | leaf.may)
        made = self.fresh(call.var.type, call.var, call)
        entries = iter(summary.results)
        return _mapped(made, lambda leaf: self.returned(leaf, next(entries, None), leaves, call))

    def returned(
        self, made: Pointees, entry: ResultSummary | None, leaves: list[Pointees], call: ir.CallFunction
    ) -> Pointees:
        """One leaf of a callee's result: `made` is fresh memory, `leaves` are those of the arguments."""
        if entry is None:
            return made
        if not entry.filled:
            self.defs &= ~made.must
        if entry.constant:
            made = Pointees(made.must | CONSTANTS.must, made.may, None) if entry.fresh else CONSTANTS
        if not (entry.must or entry.may):
            if entry.storage is None:
                return made
            return Pointees(self.add(RegionKind.STORAGE, call.var, instruction=call, nbytes=entry.storage))
        must, may = (made.must, made.may) if entry.fresh or entry.constant else (NO_REGIONS, NO_REGIONS)
        for number, leaf in enumerate(leaves):
            if contains(entry.must, number):
                must, may = must | leaf.must, may | leaf.may
            elif contains(entry.may, number):
                may |= leaf.must | leaf.may
        storages = self.of_kind[RegionKind.STORAGE]
        if not made.must & storages:  # a tensor on a storage is not that storage
            must, may = must & ~storages, may & ~storages | self.handed_over(must | may)
        return Pointees(must, may, None) if must or may else made

    def tensors_of(self, operands: tuple[ir.Operand, ...]) -> tuple[RegionSet, RegionSet]:
        """All that the operands point to; of storages what a function may have written somewhere on them."""
        must = may = NO_REGIONS
        for operand in operands:
            a, b = pointees_of(self.value(operand))
            must, may = must | a, may | b
        tensors = ~self.of_kind[RegionKind.STORAGE]
        return must & tensors, may & tensors | self.handed_over(must | may)

    def handed_over(self, numbers: RegionSet) -> RegionSet:
        """The regions that stand for the content of storages among `numbers`, which a function is given."""
        found, storages = NO_REGIONS, self.of_kind[RegionKind.STORAGE]
        if numbers & (storages | self.of_kind[RegionKind.PHI]):
            for number in members(resolve(self.regions, numbers) & storages):
                found |= self.content_of(number)
        return found

    def may_return(
        self, instruction: ir.Instruction, name: str, arguments: tuple[ir.Operand, ...]
    ) -> AbstractValue:
        """The result of a call that may return one of its arguments."""
        must, may = self.tensors_of(arguments)
        regions = must | may
        made = self.fresh(instruction.var.type, instruction.var, instruction)
        if not regions or not any(leaf.must for leaf in leaves_of(made)):
            return made
        self.may_returns.append(MayReturn(name=name, regions=regions))
        return _mapped(made, lambda leaf: Pointees(leaf.must, regions, None) if leaf.must else leaf)


def _mapped(value: AbstractValue, change: Callable[[Pointees], Pointees]) -> AbstractValue:
    if isinstance(value, TuplePointees):
        return TuplePointees(tuple(_mapped(item, change) for item in value.items))
    return change(value)


_TRANSFER: dict[type, Callable[[_PointsToBuilder, Any], AbstractValue]] = {
    ir.Alias: lambda builder, i: builder.value(i.source),
    ir.AllocFresh: _PointsToBuilder.alloc_fresh,
    ir.AllocStorage: _PointsToBuilder.alloc_storage,
    ir.AllocTensor: _PointsToBuilder.alloc_tensor,
    ir.CallFunction: _PointsToBuilder.call_function,
    ir.CallOperator: _PointsToBuilder.call_operator,
    ir.CallPacked: _PointsToBuilder.call_packed,
    ir.CallTIR: _PointsToBuilder.call_tir,
    ir.MakeTuple: lambda builder, i: TuplePointees(tuple(builder.value(field) for field in i.fields)),
    ir.MatchCast: lambda builder, i: builder.value(i.source if i.returns else None),
    ir.NotUnderstood: _PointsToBuilder.not_understood,
    ir.TakeField: _PointsToBuilder.take_field,
    ir.View: _PointsToBuilder.view,
}
