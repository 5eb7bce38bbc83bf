"""The regions that every variable of a function points to, tuple field by tuple field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from symalloc.analysis.argument_binding import bind_parameters
from symalloc.analysis.regions import (
    CONSTANTS,
    NO_POINTEES,
    AbstractValue,
    Consumed,
    Pointees,
    Region,
    RegionKind,
    RegionMaker,
    Target,
    TuplePointees,
    collapsed,
    known_bytes,
    leaves_of,
    only_region,
    pointees_of,
    resolve,
    sum_of,
    targets,
)
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members, only_member
from symalloc.analysis.summary import FunctionSummary, ResultSummary, align
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.record import from_fields
from symalloc.program.types import (
    ALIGNMENT,
    TupleType,
    Type,
)
from symalloc.size.expr import ZERO, Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class MayReturn:
    """A call of `name` whose result may be one of its arguments, that is one of `regions`."""

    name: str
    regions: RegionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PointsTo:
    """The regions of one function, and which of them each variable points to.

    `values` holds the values of variables; those that point to nothing may be left out.  `defs` are the
    regions that a point makes and fills, by its number.  `ancestors[r]` are region r and what it is part of,
    `descendants[r]` region r and its parts.  `storages`, `phis` and `views` are the regions of those kinds,
    `constants` that of the constants with its parts.  `parameters` holds the leaves of the parameters,
    `consumed` what in-place calls overwrite.  `contents_of` gives by storage the region that stands for what
    functions to which it was handed write and read there, somewhere.
    """

    cfg: ControlFlowGraph
    regions: Sequence[Region]
    values: Mapping[ir.Var, AbstractValue]
    defs: Mapping[int, RegionSet]
    ancestors: Mapping[int, RegionSet]
    descendants: Mapping[int, RegionSet]
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


# -- how it is found ----------------------------------------------------------------------------------------

_BEGIN_AT_ZERO = (ir.AllocFresh, ir.CallTIR, ir.CallOperator)
"""What makes tensors whose handles have no offset."""


def find_points_to(
    cfg: ControlFlowGraph,
    summaries: Mapping[str, FunctionSummary],
    parameters: Mapping[str, tuple[Type, ...]],
    *,
    versions: bool = False,
    unsure: frozenset[ir.Var] = frozenset(),
) -> PointsTo:
    """Analyse one function, given the summaries of its callees and the types of their parameters.

    `versions`: what an in-place call makes of its operand counts as other memory than the operand, so that
    handles of before the call and of after it are told apart.  What calls that bind a variable of `unsure`
    return of their arguments, they return on some paths only.
    """
    return _PointsToBuilder(cfg, summaries, parameters, versions, unsure).build()


class _PointsToBuilder(RegionMaker):
    """Binds variable after variable."""

    def __init__(
        self,
        cfg: ControlFlowGraph,
        summaries: Mapping[str, FunctionSummary],
        parameters: Mapping[str, tuple[Type, ...]],
        versions: bool,
        unsure: frozenset[ir.Var],
    ) -> None:
        super().__init__(storage_variables(cfg))
        self.unsure = unsure
        self.cfg, self.summaries, self.parameters, self.versions = cfg, summaries, parameters, versions
        self.values: dict[ir.Var, AbstractValue] = {}
        self.may_returns: list[MayReturn] = []
        self.consumed: list[Consumed] = []
        self.at = -1

    def build(self) -> PointsTo:
        params = self.cfg.function.params
        for param in params:
            self.values[param] = self.fresh(param.type, param, None, external=True)
        defs = self.bind_all()
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
            result=self.value(self.cfg.function.body.result),
            parameters=tuple(leaf for param in params for leaf in align(self.values[param], param.type)),
            may_returns=tuple(self.may_returns),
            contents_of=self.contents,
            consumed=tuple(self.consumed),
        )

    def bind_all(self) -> Mapping[int, RegionSet]:
        """Bind variable after variable; return the regions that points make and fill."""
        defs: dict[int, RegionSet] = {}
        joins = {join: (branch, middle) for branch, (middle, join) in self.cfg.joins.items()}
        for at, instruction in self.cfg.bindings:
            self.at = at
            if at in joins:
                self.values[instruction.var] = self.joined(instruction, *joins[at])
                continue
            transfer = _TRANSFER.get(type(instruction))
            if transfer is not None:
                self.values[instruction.var] = transfer(self, instruction)
            if self.defs:
                defs[at], self.defs = self.defs, NO_REGIONS
        return defs

    def joined(self, made: ir.Instruction, branch: int, middle: int) -> AbstractValue:
        """The value of the If at `branch`, whose then-block ends at `middle`."""
        then, otherwise = (self.value(self.cfg.points[end].operand) for end in (middle, self.at))
        return self.phi(then, otherwise, branch, made)

    def value(self, operand: ir.Operand | None) -> AbstractValue:
        return value_in(self.values, operand)

    # -- instructions --------------------------------------------------------------------------------------

    def alloc_storage(self, made: ir.AllocStorage) -> AbstractValue:
        return Pointees(self.add(RegionKind.STORAGE, made.var, instruction=made, nbytes=made.size))

    def alloc_tensor(self, made: ir.AllocTensor) -> AbstractValue:
        nbytes = known_bytes(made.shape, made.dtype)
        source = self.value(made.storage)
        alone = only_region(self.regions, source)
        if alone is None or alone.kind is not RegionKind.STORAGE:
            source = self.no_tensors(source)
        must, may = self.placed(RegionKind.TENSOR, source, made, made.offset, nbytes)
        if not must and not may:
            must = self.add(RegionKind.FRESH, made.var, instruction=made, nbytes=nbytes)
        return Pointees(must, may, made.offset)

    def alloc_fresh(self, made: ir.AllocFresh) -> AbstractValue:
        nbytes = known_bytes(made.shape, made.dtype)
        one = self.add(RegionKind.FRESH, made.var, instruction=made, nbytes=nbytes)
        return from_fields(Pointees, (one, NO_REGIONS, ZERO))

    def view(self, view: ir.View) -> AbstractValue:
        source = collapsed(self.value(view.source))
        if view.kind == "ensure_zero_offset":
            copied = self.is_copied(source)
            return self.fresh(view.var.type, view.var, view) if copied else Pointees(source.must, source.may)
        if view.kind == "reshape":
            return source
        nbytes = known_bytes(view.shape, view.dtype)
        must, may = self.placed(RegionKind.VIEW, source, view, view.offset, nbytes)
        return Pointees(must, may, sum_of(source.offset, view.offset))

    def is_copied(self, source: Pointees) -> bool:
        """True if an ensure_zero_offset of `source` makes a copy, whatever the shapes.

        That is not known of memory that a caller or a callee hands over: it may be handed with an offset.
        """
        view = only_region(self.regions, source)
        if view is None or view.kind is not RegionKind.VIEW or view.offset is None:
            return False
        root = self.regions[view.root]
        if root.kind is not RegionKind.STORAGE and not isinstance(root.instruction, _BEGIN_AT_ZERO):
            return False
        return bool((view.offset % ALIGNMENT).as_constant)

    def take_field(self, instruction: ir.TakeField) -> AbstractValue:
        source = self.value(instruction.source)
        if isinstance(source, Pointees):
            return source
        return source.items[instruction.index] if 0 <= instruction.index < len(source.items) else NO_POINTEES

    def call_tir(self, call: ir.CallTIR) -> AbstractValue:
        if not call.outputs:
            return self.fresh(call.var.type, call.var, call)
        return self.updated(call, call.outputs, call.inputs)

    def updated(
        self,
        call: ir.CallTIR | ir.CallPacked,
        outputs: Sequence[Type],
        inputs: Sequence[ir.Operand],
    ) -> AbstractValue:
        """The result of a call: output i is input `inplace[i]`, or new memory where that is None."""
        fields: list[AbstractValue] = []
        for output, donor in zip_longest(outputs, call.inplace[: len(outputs)]):
            operand = inputs[donor] if donor is not None and 0 <= donor < len(inputs) else None
            if operand is not None:
                self.consumed.append(Consumed(self.at, operand, collapsed(self.value(operand))))
            fresh = operand is None or self.versions
            fields.append(self.fresh(output, call.var, call) if fresh else self.value(operand))
        return TuplePointees(tuple(fields)) if isinstance(call.var.type, TupleType) else fields[0]

    def call_packed(self, call: ir.CallPacked) -> AbstractValue:
        if call.inplace:
            kind = call.var.type
            return self.updated(call, kind.fields if isinstance(kind, TupleType) else (kind,), call.arguments)
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
        named = [(argument, leaf) for argument, kind in pairs for leaf in align(self.value(argument), kind)]
        leaves = [leaf for _, leaf in named]
        for number in members(summary.consumes):
            if number < len(named):
                self.consumed.append(Consumed(self.at, *named[number]))
        for leaf in leaves:
            self.handed_over(leaf.must | leaf.may)
        made = self.fresh(call.var.type, call.var, call)
        results = summary.updated_results if self.versions else summary.results
        entries = iter(results)
        return _mapped(made, lambda leaf: self.returned_at(leaf, next(entries, None), leaves, call, kinds))

    def returned_at(
        self,
        made: Pointees,
        entry: ResultSummary | None,
        leaves: list[Pointees],
        call: ir.CallFunction,
        kinds: Sequence[Type],
    ) -> Pointees:
        """One leaf of a callee's result, with the byte offset that its handle carries."""
        found = self.returned(made, entry, leaves, call)
        if entry is None or found is NO_POINTEES or entry.offset == ZERO == found.offset:
            return found
        return found._replace(offset=self.offset_of(entry, leaves, bind_parameters(kinds, call.arguments)))

    def offset_of(
        self, entry: ResultSummary, leaves: Sequence[Pointees], bound: Mapping[str, Expr]
    ) -> Expr | None:
        """The byte offset of a result, where it is new memory or one parameter for sure."""
        if entry.offset is None or not entry.offset.symbols <= bound.keys():
            return None
        offset, given = entry.offset.substitute(bound), tuple(members(entry.must | entry.may))
        if not given:
            return offset
        alone = len(given) == 1 and entry.must and not entry.fresh and given[0] < len(leaves)
        return sum_of(leaves[given[0]].offset, offset) if alone else None

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
            if contains(entry.must, number) and call.var not in self.unsure:
                must, may = must | leaf.must, may | leaf.may
            elif contains(entry.must | entry.may, number):
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


def storage_variables(cfg: ControlFlowGraph) -> frozenset[ir.Var]:
    """The parameters and results of calls on which the function places tensors, under whatever name."""
    tensors = cfg.of_type(ir.AllocTensor)
    if not tensors:
        return frozenset()
    reserved = {made.var for _, made in cfg.of_type(ir.AllocStorage)}
    placed = dict.fromkeys(made.storage for _, made in tensors)
    pending: list[ir.Operand] = [s for s in placed if isinstance(s, ir.Var) and s not in reserved]
    seen: set[ir.Var] = set()
    while pending:
        operand = pending.pop()
        if isinstance(operand, ir.TupleValue):
            pending.extend(operand.items)
        elif isinstance(operand, ir.Var) and operand not in seen:
            seen.add(operand)
            pending.extend(_sources(cfg.definitions.get(operand)))
    return frozenset(seen)


def _sources(made: ir.Instruction | None) -> tuple[ir.Operand, ...]:
    """The operands that the value of an instruction may be."""
    match made:
        case ir.Alias(source=source) | ir.MatchCast(source=source) | ir.TakeField(source=source):
            return (source,)
        case ir.MakeTuple(fields=fields):
            return fields
        case ir.If(then=then, otherwise=otherwise):
            return then.result, otherwise.result
    return ()
