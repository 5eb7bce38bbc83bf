"""Finds what every variable of a function points to, tuple field by tuple field.

One pass over the steps: a variable is bound once, so its value is known when it is used.  The value of an
If is a CHOICE between what its two blocks yield; analyses that know which branch they are on take it
apart again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from symalloc.analysis.pointers import MayReturn, PointsTo, value_of
from symalloc.analysis.region_maker import RegionMaker, collapsed, known_bytes, sum_of
from symalloc.analysis.regions import (
    EMPTY,
    AbstractValue,
    Pointees,
    RegionKind,
    TuplePointees,
    leaves_of,
    pointees_of,
)
from symalloc.analysis.summary import FunctionSummary, Returned, align
from symalloc.program.control_flow import ControlFlowGraph, PointKind
from symalloc.program.model import (
    Alias,
    AllocFresh,
    AllocStorage,
    AllocTensor,
    CallFunction,
    CallOperator,
    CallPacked,
    CallTIR,
    FunctionRef,
    Instruction,
    MakeTuple,
    MatchCast,
    NotUnderstood,
    Operand,
    Ownership,
    TakeField,
    TupleValue,
    Var,
    View,
)
from symalloc.program.types import (
    TupleType,
    Type,
)

_CACHED = "vm.builtin.cuda_graph.get_cached_alloc"


def find_points_to(
    cfg: ControlFlowGraph,
    summaries: Mapping[str, FunctionSummary],
    parameters: Mapping[str, tuple[Type, ...]],
) -> PointsTo:
    """What the variables of a function point to, given what its callees do and the types of their
    parameters.
    """
    return _Builder(cfg, summaries, parameters).build()


class _Builder(RegionMaker):
    """Binds variable after variable."""

    def __init__(
        self,
        cfg: ControlFlowGraph,
        summaries: Mapping[str, FunctionSummary],
        parameters: Mapping[str, tuple[Type, ...]],
    ) -> None:
        super().__init__()
        self.cfg, self.summaries, self.parameters = cfg, summaries, parameters
        self.values: dict[Var, AbstractValue] = {}
        self.may_returns: list[MayReturn] = []

    def build(self) -> PointsTo:
        function = self.cfg.function
        for param in function.params:
            self.values[param] = self.fresh(param.type, param, None, external=True)
        given = tuple(cell for param in function.params for cell in align(self.values[param], param.type))
        made = [self.step(index) for index in range(len(self.cfg.points))]
        above, below = self.relations()
        return PointsTo(
            cfg=self.cfg,
            regions=tuple(self.regions),
            values=self.values,
            defs=made,
            ancestors=above,
            descendants=below,
            storages=self.of_kind[RegionKind.STORAGE],
            phis=self.of_kind[RegionKind.PHI],
            views=self.of_kind[RegionKind.VIEW],
            result=self.value(self.cfg.points[-1].operand),
            parameters=given,
            may_returns=tuple(self.may_returns),
        )

    def step(self, index: int) -> int:
        """Binds what step `index` binds; returns the regions that it makes and fills."""
        step, self.defs = self.cfg.points[index], 0
        instruction = step.instruction
        if instruction is None:
            return 0
        if step.kind is PointKind.INSTRUCTION:
            transfer = _TRANSFER.get(type(instruction))
            self.values[instruction.var] = EMPTY if transfer is None else transfer(self, instruction)
        elif step.kind is PointKind.JOIN:
            then = self.value(self.cfg.points[self.cfg.joins[step.branch][0]].operand)
            self.values[instruction.var] = self.either(
                then, self.value(step.operand), step.branch, instruction
            )
        return self.defs

    def value(self, operand: Operand | None) -> AbstractValue:
        return value_of(self.values, operand)

    # -- instructions --------------------------------------------------------------------------------

    def alloc_storage(self, instruction: AllocStorage) -> AbstractValue:
        return Pointees(
            self.add(RegionKind.STORAGE, instruction.var, instruction=instruction, nbytes=instruction.size), 0
        )

    def alloc_tensor(self, instruction: AllocTensor) -> AbstractValue:
        nbytes = known_bytes(instruction.shape, instruction.dtype)
        source = self.value(instruction.storage)
        if type(source) is not Pointees or (source.must | source.may) & ~self.of_kind[RegionKind.STORAGE]:
            source = self.no_tensors(source)
        must, may = self.placed(RegionKind.TENSOR, source, instruction, instruction.offset, nbytes)
        if not must and not may:
            must = self.add(RegionKind.FRESH, instruction.var, instruction=instruction, nbytes=nbytes)
        return Pointees(must, may, instruction.offset)

    def alloc_fresh(self, instruction: AllocFresh) -> AbstractValue:
        nbytes = known_bytes(instruction.shape, instruction.dtype)
        return Pointees(
            self.add(RegionKind.FRESH, instruction.var, instruction=instruction, nbytes=nbytes), 0
        )

    def view(self, instruction: View) -> AbstractValue:
        source = collapsed(self.value(instruction.source))
        if instruction.kind == "ensure_zero_offset":
            return Pointees(source.must, source.may)
        if instruction.kind == "reshape":
            return source
        nbytes = known_bytes(instruction.shape, instruction.dtype)
        must, may = self.placed(RegionKind.VIEW, source, instruction, instruction.offset, nbytes)
        return Pointees(must, may, sum_of(source.offset, instruction.offset))

    def take_field(self, instruction: TakeField) -> AbstractValue:
        source = self.value(instruction.source)
        if isinstance(source, Pointees):
            return source
        return source.items[instruction.index] if 0 <= instruction.index < len(source.items) else EMPTY

    def call_tir(self, instruction: CallTIR) -> AbstractValue:
        fields: list[AbstractValue] = []
        for index, output in enumerate(instruction.outputs):
            donor = instruction.inplace[index] if index < len(instruction.inplace) else None
            if donor is not None and 0 <= donor < len(instruction.inputs):
                fields.append(self.value(instruction.inputs[donor]))
            else:
                fields.append(self.fresh(output, instruction.var, instruction))
        if not fields:
            return self.fresh(instruction.var.type, instruction.var, instruction)
        return TuplePointees(tuple(fields)) if isinstance(instruction.var.type, TupleType) else fields[0]

    def call_packed(self, instruction: CallPacked) -> AbstractValue:
        maker = self.summaries.get(cached_maker(instruction) or "")
        if maker is not None:
            entries = iter(maker.results)
            made = self.fresh(instruction.var.type, instruction.var, instruction)
            return _mapped(
                made, lambda cell: self.stored(cell, next(entries, None), instruction, external=True)
            )
        if instruction.ownership is Ownership.FRESH:
            return self.fresh(instruction.var.type, instruction.var, instruction)
        must, may = self.all_of(instruction.arguments)
        if instruction.ownership is Ownership.ARGUMENT:
            return Pointees(must, may, None)
        return self.doubtful(instruction, instruction.name, must | may)

    def call_operator(self, instruction: CallOperator) -> AbstractValue:
        return self.fresh(instruction.var.type, instruction.var, instruction)

    def not_understood(self, instruction: NotUnderstood) -> AbstractValue:
        must, may = self.all_of(instruction.reads)
        return self.doubtful(instruction, instruction.what, must | may)

    def call_function(self, instruction: CallFunction) -> AbstractValue:
        summary = self.summaries.get(instruction.name)
        kinds = self.parameters.get(instruction.name)
        if summary is None or kinds is None:
            must, may = self.all_of(instruction.arguments)
            return self.doubtful(instruction, instruction.name, must | may)
        pairs = zip(instruction.arguments, kinds, strict=False)
        cells = [cell for argument, kind in pairs for cell in align(self.value(argument), kind)]
        made = self.fresh(instruction.var.type, instruction.var, instruction)
        entries = iter(summary.results)
        return _mapped(made, lambda cell: self.returned(cell, next(entries, None), cells, instruction))

    def stored(
        self, made: Pointees, entry: Returned | None, instruction: Instruction, *, external: bool = False
    ) -> Pointees:
        """One leaf of what a function made: a storage, where it is known to be one."""
        if entry is None or entry.storage is None:
            return made
        bit = self.add(
            RegionKind.STORAGE,
            instruction.var,
            instruction=instruction,
            nbytes=entry.storage,
            external=external,
        )
        return Pointees(bit, 0)

    def returned(
        self, made: Pointees, entry: Returned | None, cells: list[Pointees], instruction: Instruction
    ) -> Pointees:
        """One leaf of a callee's result: `made` stands for fresh memory, `cells` are the leaves of the
        arguments.
        """
        if entry is None or not (entry.must or entry.may):
            return self.stored(made, entry, instruction)
        must, may = (made.must, made.may) if entry.fresh else (0, 0)
        for leaf, cell in enumerate(cells):
            if entry.must >> leaf & 1:
                must, may = must | cell.must, may | cell.may
            elif entry.may >> leaf & 1:
                may |= cell.must | cell.may
        if not made.must & self.of_kind[RegionKind.STORAGE]:  # a tensor on a storage is not that storage
            must, may = must & ~self.of_kind[RegionKind.STORAGE], may & ~self.of_kind[RegionKind.STORAGE]
        return Pointees(must, may, None) if must or may else made

    def all_of(self, operands: tuple[Operand, ...]) -> tuple[int, int]:
        """All that the operands point to; no storages, which hold nothing of their own."""
        must = may = 0
        for operand in operands:
            a, b = pointees_of(self.value(operand))
            must, may = must | a, may | b
        return must & ~self.of_kind[RegionKind.STORAGE], may & ~self.of_kind[RegionKind.STORAGE]

    def doubtful(self, instruction: Instruction, name: str, regions: int) -> AbstractValue:
        """The result of a call that may return one of `regions`."""
        made = self.fresh(instruction.var.type, instruction.var, instruction)
        if not regions or not any(cell.must for cell in leaves_of(made)):
            return made
        self.may_returns.append(MayReturn(name=name, regions=regions))
        return _mapped(made, lambda cell: Pointees(cell.must, regions, None) if cell.must else cell)


def cached_maker(call: CallPacked) -> str | None:
    """The function whose result `call` keeps from one run to the next; None for other calls."""
    if call.name != _CACHED:
        return None
    pending = list(call.arguments)
    while pending:
        operand = pending.pop()
        if isinstance(operand, FunctionRef):
            return operand.name
        if isinstance(operand, TupleValue):
            pending.extend(operand.items)
    return None


def _mapped(value: AbstractValue, change: Callable[[Pointees], Pointees]) -> AbstractValue:
    if isinstance(value, TuplePointees):
        return TuplePointees(tuple(_mapped(item, change) for item in value.items))
    return change(value)


_TRANSFER: dict[type, Callable[[_Builder, Any], AbstractValue]] = {
    Alias: lambda builder, i: builder.value(i.source),
    AllocFresh: _Builder.alloc_fresh,
    AllocStorage: _Builder.alloc_storage,
    AllocTensor: _Builder.alloc_tensor,
    CallFunction: _Builder.call_function,
    CallOperator: _Builder.call_operator,
    CallPacked: _Builder.call_packed,
    CallTIR: _Builder.call_tir,
    MakeTuple: lambda builder, i: TuplePointees(tuple(builder.value(field) for field in i.fields)),
    MatchCast: lambda builder, i: builder.value(i.source),
    NotUnderstood: _Builder.not_understood,
    TakeField: _Builder.take_field,
    View: _Builder.view,
}
