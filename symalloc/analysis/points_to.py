"""Finds the regions that every variable of a function points to, tuple field by tuple field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from symalloc.analysis.call_expansion import bind_function
from symalloc.analysis.regions import (
    CONSTANTS,
    NO_POINTEES,
    AbstractValue,
    Consumed,
    FunctionSummary,
    MayReturn,
    Pointees,
    PointsTo,
    Region,
    RegionKind,
    ResultSummary,
    TuplePointees,
    align,
    collapsed,
    leaves_of,
    pointees_of,
    sum_of,
    union_of,
)
from symalloc.analysis.sets import NO_REGIONS, RegionSet, members, region_set
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph, PointKind
from symalloc.program.operands import other_names, type_of
from symalloc.program.types import (
    ALIGNMENT,
    FunctionType,
    OpaqueType,
    ScalarType,
    ShapeType,
    StorageType,
    TensorType,
    TupleType,
    Type,
    byte_count,
)
from symalloc.size.expr import ZERO, Expr

_BEGIN_AT_ZERO = (ir.AllocFresh, ir.CallTIR, ir.CallOperator)
"""What makes tensors whose handles have no offset."""
_MOST_PLACES = 64
"""The number of regions up to which a part is told apart from the whole."""
_CONSTANT = ir.Var("constant", OpaqueType())


class PointsToBuilder:
    """Analyses one function, given the program that it stands in and the summaries of its callees.

    `versions`: what an in-place call makes of its operand counts as other memory than the operand, so that
    handles of before the call and of after it are told apart.  What calls that bind a variable of `unsure`
    return of their arguments, they return on some paths only.  `defs` are the regions that the current point
    makes and fills; `storage_vars` the variables of opaque values that serve as storages.
    """

    def __init__(
        self,
        program: ir.Program,
        cfg: ControlFlowGraph,
        summaries: Mapping[str, FunctionSummary],
        *,
        versions: bool = False,
        unsure: frozenset[ir.Var] = frozenset(),
    ) -> None:
        self.known = PointsTo(cfg=cfg)
        self.value = self.known.value_of
        self.program, self.summaries, self.versions = program, summaries, versions
        self.unsure = unsure
        self.storage_vars = _storage_variables(cfg)
        self.defs = NO_REGIONS
        self.at = -1

    def build(self) -> PointsTo:
        """Bind variable after variable; return the regions that they point to."""
        known, params = self.known, self.known.cfg.function.params
        self.add(RegionKind.CONSTANT, _CONSTANT, external=True)
        for param in params:
            known.values[param] = self.fresh(param.type, param)
        self.bind_all()
        self.relate()
        known.parameters = tuple(leaf for param in params for leaf in align(known.values[param], param.type))
        return known

    def bind_all(self) -> None:
        """Bind variable after variable, and note the regions that points make and fill."""
        known = self.known
        joins = {join: (branch, middle) for branch, (middle, join) in known.cfg.joins.items()}
        for at, instruction in known.cfg.at(PointKind.INSTRUCTION, PointKind.JOIN):
            self.at = at
            if at in joins:
                known.values[instruction.var] = self.joined(instruction, *joins[at])
                continue
            transfer = _TRANSFER.get(type(instruction))
            if transfer is not None:
                known.values[instruction.var] = transfer(self, instruction)
            if self.defs:
                known.defs[at], self.defs = self.defs, NO_REGIONS

    def joined(self, made: ir.Instruction, branch: int, middle: int) -> AbstractValue:
        """The value of the If at `branch`, whose then-block ends at `middle`."""
        points = self.known.cfg.points
        return self.phi(self.value(points[middle].operand), self.value(points[self.at].operand), branch, made)

    # -- regions -------------------------------------------------------------------------------------------

    def add(
        self,
        kind: RegionKind,
        made: ir.Instruction | ir.Var,
        parent: Region | None = None,
        *,
        offset: Expr | None = ZERO,
        nbytes: Expr | None = None,
        **more: Any,
    ) -> RegionSet:
        """Add a region that an instruction makes, or a parameter; return the set of it alone."""
        known, index = self.known, len(self.known.regions)
        var, instruction = (made, None) if isinstance(made, ir.Var) else (made.var, made)
        above, root = (None, index) if parent is None else (parent.number, parent.root)
        named = (index, kind, var.name, var, instruction, above, root)
        known.regions.append(Region(*named, offset=offset, nbytes=nbytes, **more))
        one = RegionSet(1 << index)
        if kind is RegionKind.STORAGE:
            known.storages |= one
        elif kind is RegionKind.PHI:
            known.phis |= one
        elif kind is RegionKind.VIEW:
            known.views |= one
        return one

    def fresh(self, kind: Type, made: ir.Instruction | ir.Var) -> AbstractValue:
        """New memory for a value of type `kind`, one region a leaf; that of a parameter is the caller's."""
        external = isinstance(made, ir.Var)
        var = made if isinstance(made, ir.Var) else made.var
        if isinstance(kind, TupleType):
            return TuplePointees(tuple(self.fresh(field, made) for field in kind.fields))
        if isinstance(kind, ShapeType | ScalarType | FunctionType):
            return NO_POINTEES
        if isinstance(kind, StorageType) or (isinstance(kind, OpaqueType) and var in self.storage_vars):
            return Pointees(self.add(RegionKind.STORAGE, made, external=True))
        what = RegionKind.PARAMETER if external else RegionKind.FRESH
        nbytes = kind.nbytes if isinstance(kind, TensorType) else None
        one = self.add(what, made, nbytes=nbytes, external=external)
        if not external:
            self.defs |= one
        return Pointees(one)

    def content_of(self, storage: int) -> RegionSet:
        """The region of unknown place that stands for what functions write and read on a storage."""
        contents = self.known.contents_of
        if storage not in contents:
            parent = self.known.regions[storage]
            made, external = parent.instruction or parent.var, parent.external
            contents[storage] = self.add(RegionKind.TENSOR, made, parent, offset=None, external=external)
        return contents[storage]

    def placed(
        self,
        kind: RegionKind,
        source: AbstractValue,
        made: ir.Instruction,
        offset: Expr | None,
        nbytes: Expr | None,
    ) -> tuple[RegionSet, RegionSet]:
        """A region inside each region that `source` may be: (must, may).

        Where these are very many, `source` itself stands for its part.
        """
        must = may = NO_REGIONS
        found = tuple(self.known.targets(*pointees_of(source)))
        if len(found) > _MOST_PLACES:
            return pointees_of(source)
        for target in found:
            parent = self.known.regions[target.region]
            at, external = sum_of(parent.offset, offset), parent.external
            one = self.add(kind, made, parent, offset=at, nbytes=nbytes, external=external, path=target.path)
            must, may = (must | one, may) if target.certain else (must, may | one)
        return must, may

    def phi(
        self, then: AbstractValue, otherwise: AbstractValue, branch: int, made: ir.Instruction
    ) -> AbstractValue:
        """The value of an If."""
        if isinstance(then, TuplePointees) and isinstance(otherwise, TuplePointees):
            pairs = zip_longest(then.items, otherwise.items, fillvalue=NO_POINTEES)
            return TuplePointees(tuple(self.phi(a, b, branch, made) for a, b in pairs))
        a, b = collapsed(then), collapsed(otherwise)
        offset = a.offset if a.offset == b.offset else None
        if (a.must, a.may) == (b.must, b.may):
            return Pointees(a.must, a.may, offset)
        one = self.add(RegionKind.PHI, made, sources=(a, b), branch=branch)
        return Pointees(one, NO_REGIONS, offset)

    def no_tensors(self, value: AbstractValue) -> AbstractValue:
        """`value` without the regions that are no storage; phis are left as they are."""
        must, may = pointees_of(value)
        tensors = region_set(i for i in members(must | may) if _is_tensor(self.known.regions[i]))
        return Pointees(must & ~tensors, may & ~tensors) if tensors else value

    def relate(self) -> None:
        """Note for each region what it is part of, and its parts."""
        ancestors, descendants = self.known.ancestors, self.known.descendants
        for region in self.known.regions:
            one, parent = RegionSet(1 << region.number), region.parent
            if parent is not None:
                ancestors[region.number] = one | ancestors[parent]
            while parent is not None:
                descendants[parent] |= one
                parent = self.known.regions[parent].parent

    # -- instructions --------------------------------------------------------------------------------------

    def alloc_storage(self, made: ir.AllocStorage) -> AbstractValue:
        return Pointees(self.add(RegionKind.STORAGE, made, nbytes=made.size))

    def alloc_tensor(self, made: ir.AllocTensor) -> AbstractValue:
        nbytes = byte_count(made.shape, made.dtype)
        source = self.value(made.storage)
        alone = self.known.only_region(source)
        if alone is None or alone.kind is not RegionKind.STORAGE:
            source = self.no_tensors(source)
        must, may = self.placed(RegionKind.TENSOR, source, made, made.offset, nbytes)
        if not must and not may:
            must = self.add(RegionKind.FRESH, made, nbytes=nbytes)
        return Pointees(must, may, made.offset)

    def alloc_fresh(self, made: ir.AllocFresh) -> AbstractValue:
        nbytes = byte_count(made.shape, made.dtype)
        one = self.add(RegionKind.FRESH, made, nbytes=nbytes)
        return Pointees(one)

    def view(self, view: ir.View) -> AbstractValue:
        source = collapsed(self.value(view.source))
        if view.kind == "ensure_zero_offset":
            copied = self.is_copied(source)
            return self.fresh(view.var.type, view) if copied else Pointees(source.must, source.may)
        if view.kind == "reshape":
            return source
        nbytes = byte_count(view.shape, view.dtype)
        must, may = self.placed(RegionKind.VIEW, source, view, view.offset, nbytes)
        return Pointees(must, may, sum_of(source.offset, view.offset))

    def is_copied(self, source: Pointees) -> bool:
        """True if an ensure_zero_offset of `source` makes a copy, whatever the shapes.

        That is not known of memory that a caller or a callee hands over: it may be handed with an offset.
        """
        view = self.known.only_region(source)
        if view is None or view.kind is not RegionKind.VIEW or view.offset is None:
            return False
        root = self.known.regions[view.root]
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
            return self.fresh(call.var.type, call)
        return self.updated(call, call.outputs, call.inputs)

    def updated(
        self, call: ir.CallTIR | ir.CallPacked, outputs: Sequence[Type], inputs: Sequence[ir.Operand]
    ) -> AbstractValue:
        """The result of a call: output i is input `inplace[i]`, or new memory where that is None."""
        fields: list[AbstractValue] = []
        for output, donor in zip_longest(outputs, call.inplace[: len(outputs)]):
            operand = inputs[donor] if donor is not None and 0 <= donor < len(inputs) else None
            if operand is not None:
                self.known.consumed.append(Consumed(self.at, operand, collapsed(self.value(operand))))
            fresh = operand is None or self.versions
            fields.append(self.fresh(output, call) if fresh else self.value(operand))
        return TuplePointees(tuple(fields)) if isinstance(call.var.type, TupleType) else fields[0]

    def call_packed(self, call: ir.CallPacked) -> AbstractValue:
        if call.inplace:
            kind = call.var.type
            return self.updated(call, kind.fields if isinstance(kind, TupleType) else (kind,), call.arguments)
        given = self.tensors_of(call.arguments)
        if call.ownership is ir.Ownership.FRESH:
            return self.fresh(call.var.type, call)
        if call.returned:
            found = tuple(self.handed_back(call.arguments[index]) for index in call.returned)
            return TuplePointees(found) if isinstance(call.var.type, TupleType) else found[0]
        if call.ownership is ir.Ownership.ARGUMENT:
            return Pointees(*given, None)
        return self.may_return(call, call.name, call.arguments)

    def handed_back(self, operand: ir.Operand) -> AbstractValue:
        """The value of an argument that is returned; of an object it is memory at any offset."""
        value, known = self.value(operand), isinstance(type_of(operand), TensorType | TupleType)
        return value if known else Pointees(*pointees_of(value), None)

    def call_operator(self, call: ir.CallOperator) -> AbstractValue:
        return self.fresh(call.var.type, call)

    def not_understood(self, construct: ir.NotUnderstood) -> AbstractValue:
        return self.may_return(construct, construct.what, construct.reads)

    def call_function(self, call: ir.CallFunction) -> AbstractValue:
        summary, callee = self.summaries.get(call.name), self.program.functions.get(call.name)
        if summary is None or callee is None:
            return self.may_return(call, call.name, call.arguments)
        named = [*self.known.argument_leaves(call.arguments, callee)]
        leaves = [leaf for _, leaf in named]
        for number in members(summary.consumes):
            if number < len(named):
                self.known.consumed.append(Consumed(self.at, *named[number]))
        for leaf in leaves:
            self.handed_over(leaf.must | leaf.may)
        made = self.fresh(call.var.type, call)
        results = summary.updated_results if self.versions else summary.results
        entries = iter(results)
        return _mapped(made, lambda leaf: self.returned_at(leaf, next(entries, None), leaves, call, callee))

    def returned_at(
        self,
        made: Pointees,
        entry: ResultSummary | None,
        leaves: list[Pointees],
        call: ir.CallFunction,
        callee: ir.Function,
    ) -> Pointees:
        """One leaf of a callee's result, with the byte offset that its handle carries."""
        found = self.returned(made, entry, leaves, call)
        if entry is None or found is NO_POINTEES or entry.offset == ZERO == found.offset:
            return found
        return found._replace(offset=self.offset_of(entry, leaves, bind_function(callee, call.arguments)))

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
            return Pointees(self.add(RegionKind.STORAGE, call, nbytes=entry.storage))
        must, may = (made.must, made.may) if entry.fresh or entry.constant else (NO_REGIONS, NO_REGIONS)
        for is_sure, numbers in ((call.var not in self.unsure, entry.must), (False, entry.may)):
            surely, perhaps = union_of(leaves, numbers)
            must, may = (must | surely, may | perhaps) if is_sure else (must, may | surely | perhaps)
        storages = self.known.storages
        if not made.must & storages:  # a tensor on a storage is not that storage
            must, may = must & ~storages, may & ~storages | self.handed_over(must | may)
        return Pointees(must, may, None) if must or may else made

    def tensors_of(self, operands: tuple[ir.Operand, ...]) -> tuple[RegionSet, RegionSet]:
        """All that the operands point to; of storages what a function may have written somewhere on them."""
        must, may = self.known.pointees(operands)
        tensors = ~self.known.storages
        return must & tensors, may & tensors | self.handed_over(must | may)

    def handed_over(self, numbers: RegionSet) -> RegionSet:
        """The regions that stand for the content of storages among `numbers`, which a function is given."""
        found, storages = NO_REGIONS, self.known.storages
        if numbers & (storages | self.known.phis):
            for number in members(self.known.resolve(numbers) & storages):
                found |= self.content_of(number)
        return found

    def may_return(
        self, instruction: ir.Instruction, name: str, arguments: tuple[ir.Operand, ...]
    ) -> AbstractValue:
        """The result of a call that may return one of its arguments."""
        must, may = self.tensors_of(arguments)
        regions = must | may
        made = self.fresh(instruction.var.type, instruction)
        if not regions or not any(leaf.must for leaf in leaves_of(made)):
            return made
        self.known.may_returns.append(MayReturn(name=name, regions=regions))
        return _mapped(made, lambda leaf: Pointees(leaf.must, regions, None) if leaf.must else leaf)


def _mapped(value: AbstractValue, change: Callable[[Pointees], Pointees]) -> AbstractValue:
    if isinstance(value, TuplePointees):
        return TuplePointees(tuple(_mapped(item, change) for item in value.items))
    return change(value)


_TRANSFER: dict[type, Callable[[PointsToBuilder, Any], AbstractValue]] = {
    ir.Alias: lambda builder, i: builder.value(i.source),
    ir.AllocFresh: PointsToBuilder.alloc_fresh,
    ir.AllocStorage: PointsToBuilder.alloc_storage,
    ir.AllocTensor: PointsToBuilder.alloc_tensor,
    ir.CallFunction: PointsToBuilder.call_function,
    ir.CallOperator: PointsToBuilder.call_operator,
    ir.CallPacked: PointsToBuilder.call_packed,
    ir.CallTIR: PointsToBuilder.call_tir,
    ir.MakeTuple: lambda builder, i: TuplePointees(tuple(builder.value(field) for field in i.fields)),
    ir.MatchCast: lambda builder, i: builder.value(i.source if i.returns else None),
    ir.NotUnderstood: PointsToBuilder.not_understood,
    ir.TakeField: PointsToBuilder.take_field,
    ir.View: PointsToBuilder.view,
}


def _is_tensor(region: Region) -> bool:
    if region.kind in (RegionKind.STORAGE, RegionKind.PHI):
        return False
    if region.kind is RegionKind.CONSTANT:
        return True
    return region.nbytes is not None or isinstance(region.var.type, TensorType)


def _storage_variables(cfg: ControlFlowGraph) -> frozenset[ir.Var]:
    """The parameters and results of calls on which the function places tensors, under whatever name."""
    tensors = cfg.of_type(ir.AllocTensor)
    if not tensors:
        return frozenset()
    reserved = {made.var for _, made in cfg.of_type(ir.AllocStorage)}
    placed = dict.fromkeys(made.storage for _, made in tensors)
    pending: list[tuple[ir.Operand, tuple[int, ...]]] = [(one, ()) for one in placed if one not in reserved]
    seen: set[tuple[ir.Operand, tuple[int, ...]]] = set()
    while pending:
        for name in other_names(pending[-1][0], cfg.definitions, pending.pop()[1]):
            made = cfg.definitions.get(name[0]) if isinstance(name[0], ir.Var) else None
            if isinstance(made, ir.If) and name not in seen:
                pending += ((made.then.result, name[1]), (made.otherwise.result, name[1]))
            seen.add(name)
    return frozenset(operand for operand, _ in seen if isinstance(operand, ir.Var))
