"""Finds what every variable of a function points to, tuple field by tuple field.

One pass over the steps: a variable is bound once, so its value is known when it is used.  The value of an
If is a CHOICE between what its two blocks yield; analyses that know which branch they are on take it
apart again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from symalloc.analysis.pointers import Doubt, PointsTo, value_of
from symalloc.analysis.region_maker import RegionMaker, collapsed, known_bytes, sum_of
from symalloc.analysis.regions import EMPTY, Cell, Fields, Kind, Value, bits_of, fold
from symalloc.analysis.summary import FunctionSummary, Returned, align
from symalloc.program.flow import Flow, Mark
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

__all__ = ["cached_maker", "points_to"]

_CACHED = "vm.builtin.cuda_graph.get_cached_alloc"


def points_to(
    flow: Flow, summaries: Mapping[str, FunctionSummary], parameters: Mapping[str, tuple[Type, ...]]
) -> PointsTo:
    """What the variables of a function point to, given what its callees do and the types of their
    parameters.
    """
    return _Builder(flow, summaries, parameters).build()


class _Builder(RegionMaker):
    """Binds variable after variable."""

    def __init__(
        self, flow: Flow, summaries: Mapping[str, FunctionSummary], parameters: Mapping[str, tuple[Type, ...]]
    ) -> None:
        super().__init__()
        self.flow, self.summaries, self.parameters = flow, summaries, parameters
        self.values: dict[Var, Value] = {}
        self.doubts: list[Doubt] = []

    def build(self) -> PointsTo:
        function = self.flow.function
        for param in function.params:
            self.values[param] = self.fresh(param.type, param, None, given=True)
        given = tuple(cell for param in function.params for cell in align(self.values[param], param.type))
        made = [self.step(index) for index in range(len(self.flow.steps))]
        above, below = self.relations()
        return PointsTo(
            flow=self.flow,
            regions=tuple(self.regions),
            values=self.values,
            made=made,
            above=above,
            below=below,
            storages=self.of_kind[Kind.STORAGE],
            choices=self.of_kind[Kind.CHOICE],
            views=self.of_kind[Kind.VIEW],
            result=self.value(self.flow.steps[-1].operand),
            given=given,
            doubts=tuple(self.doubts),
        )

    def step(self, index: int) -> int:
        """Binds what step `index` binds; returns the regions that it makes and fills."""
        step, self.made = self.flow.steps[index], 0
        instruction = step.instruction
        if instruction is None:
            return 0
        if step.mark is Mark.PLAIN:
            transfer = _TRANSFER.get(type(instruction))
            self.values[instruction.var] = EMPTY if transfer is None else transfer(self, instruction)
        elif step.mark is Mark.JOIN:
            then = self.value(self.flow.steps[self.flow.joins[step.first][0]].operand)
            self.values[instruction.var] = self.either(
                then, self.value(step.operand), step.first, instruction
            )
        return self.made

    def value(self, operand: Operand | None) -> Value:
        return value_of(self.values, operand)

    # -- instructions --------------------------------------------------------------------------------

    def alloc_storage(self, instruction: AllocStorage) -> Value:
        return Cell(
            self.add(Kind.STORAGE, instruction.var, instruction=instruction, nbytes=instruction.size), 0
        )

    def alloc_tensor(self, instruction: AllocTensor) -> Value:
        nbytes = known_bytes(instruction.shape, instruction.dtype)
        source = self.value(instruction.storage)
        if type(source) is not Cell or (source.sure | source.maybe) & ~self.of_kind[Kind.STORAGE]:
            source = self.no_tensors(source)
        sure, maybe = self.placed(Kind.TENSOR, source, instruction, instruction.offset, nbytes)
        if not sure and not maybe:
            sure = self.add(Kind.FRESH, instruction.var, instruction=instruction, nbytes=nbytes)
        return Cell(sure, maybe, instruction.offset)

    def alloc_fresh(self, instruction: AllocFresh) -> Value:
        nbytes = known_bytes(instruction.shape, instruction.dtype)
        return Cell(self.add(Kind.FRESH, instruction.var, instruction=instruction, nbytes=nbytes), 0)

    def view(self, instruction: View) -> Value:
        source = collapsed(self.value(instruction.source))
        if instruction.kind == "ensure_zero_offset":
            return Cell(source.sure, source.maybe)
        if instruction.kind == "reshape":
            return source
        nbytes = known_bytes(instruction.shape, instruction.dtype)
        sure, maybe = self.placed(Kind.VIEW, source, instruction, instruction.offset, nbytes)
        return Cell(sure, maybe, sum_of(source.offset, instruction.offset))

    def take_field(self, instruction: TakeField) -> Value:
        source = self.value(instruction.source)
        if isinstance(source, Cell):
            return source
        return source.items[instruction.index] if 0 <= instruction.index < len(source.items) else EMPTY

    def call_tir(self, instruction: CallTIR) -> Value:
        fields: list[Value] = []
        for index, output in enumerate(instruction.outputs):
            donor = instruction.inplace[index] if index < len(instruction.inplace) else None
            if donor is not None and 0 <= donor < len(instruction.inputs):
                fields.append(self.value(instruction.inputs[donor]))
            else:
                fields.append(self.fresh(output, instruction.var, instruction))
        if not fields:
            return self.fresh(instruction.var.type, instruction.var, instruction)
        return Fields(tuple(fields)) if isinstance(instruction.var.type, TupleType) else fields[0]

    def call_packed(self, instruction: CallPacked) -> Value:
        maker = self.summaries.get(cached_maker(instruction) or "")
        if maker is not None:
            entries = iter(maker.results)
            made = self.fresh(instruction.var.type, instruction.var, instruction)
            return _mapped(made, lambda cell: self.stored(cell, next(entries, None), instruction, given=True))
        if instruction.ownership is Ownership.FRESH:
            return self.fresh(instruction.var.type, instruction.var, instruction)
        sure, maybe = self.all_of(instruction.arguments)
        if instruction.ownership is Ownership.ARGUMENT:
            return Cell(sure, maybe, None)
        return self.doubtful(instruction, instruction.name, sure | maybe)

    def call_operator(self, instruction: CallOperator) -> Value:
        return self.fresh(instruction.var.type, instruction.var, instruction)

    def not_understood(self, instruction: NotUnderstood) -> Value:
        sure, maybe = self.all_of(instruction.reads)
        return self.doubtful(instruction, instruction.what, sure | maybe)

    def call_function(self, instruction: CallFunction) -> Value:
        summary = self.summaries.get(instruction.name)
        kinds = self.parameters.get(instruction.name)
        if summary is None or kinds is None:
            sure, maybe = self.all_of(instruction.arguments)
            return self.doubtful(instruction, instruction.name, sure | maybe)
        pairs = zip(instruction.arguments, kinds, strict=False)
        cells = [cell for argument, kind in pairs for cell in align(self.value(argument), kind)]
        made = self.fresh(instruction.var.type, instruction.var, instruction)
        entries = iter(summary.results)
        return _mapped(made, lambda cell: self.returned(cell, next(entries, None), cells, instruction))

    def stored(
        self, made: Cell, entry: Returned | None, instruction: Instruction, *, given: bool = False
    ) -> Cell:
        """One leaf of what a function made: a storage, where it is known to be one."""
        if entry is None or entry.storage is None:
            return made
        bit = self.add(
            Kind.STORAGE, instruction.var, instruction=instruction, nbytes=entry.storage, given=given
        )
        return Cell(bit, 0)

    def returned(
        self, made: Cell, entry: Returned | None, cells: list[Cell], instruction: Instruction
    ) -> Cell:
        """One leaf of a callee's result: `made` stands for fresh memory, `cells` are the leaves of the
        arguments.
        """
        if entry is None or not (entry.sure or entry.maybe):
            return self.stored(made, entry, instruction)
        sure, maybe = (made.sure, made.maybe) if entry.fresh else (0, 0)
        for leaf, cell in enumerate(cells):
            if entry.sure >> leaf & 1:
                sure, maybe = sure | cell.sure, maybe | cell.maybe
            elif entry.maybe >> leaf & 1:
                maybe |= cell.sure | cell.maybe
        if not made.sure & self.of_kind[Kind.STORAGE]:  # a tensor on a storage is not that storage
            sure, maybe = sure & ~self.of_kind[Kind.STORAGE], maybe & ~self.of_kind[Kind.STORAGE]
        return Cell(sure, maybe, None) if sure or maybe else made

    def all_of(self, operands: tuple[Operand, ...]) -> tuple[int, int]:
        """All that the operands point to; no storages, which hold nothing of their own."""
        sure = maybe = 0
        for operand in operands:
            a, b = bits_of(self.value(operand))
            sure, maybe = sure | a, maybe | b
        return sure & ~self.of_kind[Kind.STORAGE], maybe & ~self.of_kind[Kind.STORAGE]

    def doubtful(self, instruction: Instruction, name: str, regions: int) -> Value:
        """The result of a call that may return one of `regions`."""
        made = self.fresh(instruction.var.type, instruction.var, instruction)
        if not regions or not any(cell.sure for cell in fold(made)):
            return made
        self.doubts.append(Doubt(name=name, regions=regions))
        return _mapped(made, lambda cell: Cell(cell.sure, regions, None) if cell.sure else cell)


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


def _mapped(value: Value, change: Callable[[Cell], Cell]) -> Value:
    if isinstance(value, Fields):
        return Fields(tuple(_mapped(item, change) for item in value.items))
    return change(value)


_TRANSFER: dict[type, Callable[[_Builder, Any], Value]] = {
    Alias: lambda builder, i: builder.value(i.source),
    AllocFresh: _Builder.alloc_fresh,
    AllocStorage: _Builder.alloc_storage,
    AllocTensor: _Builder.alloc_tensor,
    CallFunction: _Builder.call_function,
    CallOperator: _Builder.call_operator,
    CallPacked: _Builder.call_packed,
    CallTIR: _Builder.call_tir,
    MakeTuple: lambda builder, i: Fields(tuple(builder.value(field) for field in i.fields)),
    MatchCast: lambda builder, i: builder.value(i.source),
    NotUnderstood: _Builder.not_understood,
    TakeField: _Builder.take_field,
    View: _Builder.view,
}
