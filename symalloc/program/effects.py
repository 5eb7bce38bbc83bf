"""Which regions each step of a function reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from symalloc.program.flow import Mark, Step
from symalloc.program.model import (
    CallFunction,
    CallKernel,
    CallOperator,
    CallPacked,
    CallTIR,
    Function,
    KernelBuffer,
    NotUnderstood,
    Operand,
    Program,
)
from symalloc.program.operands import tensor_type
from symalloc.program.pointers import PointsTo
from symalloc.program.regions import bits_of
from symalloc.program.summary import FunctionSummary, align

__all__ = ["NO_EFFECT", "Effect", "effects"]


class Effect(NamedTuple):
    """What one step does to regions; `maybe_` where a function of unknown ownership stands between.

    `fills` are arguments of a function that is not known to write but may: one that holds nothing yet
    counts as written, for it makes no sense to hand over memory without content otherwise.  `makes` are
    regions that come into being filled.  `covers` are regions of which every byte is written, on every
    path through the step: what they held before is needed by nobody behind it.
    """

    reads: int = 0
    maybe_reads: int = 0
    writes: int = 0
    maybe_writes: int = 0
    fills: int = 0
    makes: int = 0
    covers: int = 0


NO_EFFECT = Effect()


def effects(program: Program, points: PointsTo, summaries: Mapping[str, FunctionSummary]) -> Sequence[Effect]:
    """The effect of every step of `points.flow`."""
    reader = _Reader(program, points, summaries)
    return [reader.effect(index, step) for index, step in enumerate(points.flow.steps)]


class _Reader:
    def __init__(self, program: Program, points: PointsTo, summaries: Mapping[str, FunctionSummary]) -> None:
        self.program, self.points, self.summaries = program, points, summaries
        self.tensors = ~points.storages

    def effect(self, index: int, step: Step) -> Effect:
        if step.mark is Mark.END:
            return Effect(*self.all_of((step.operand,)))
        instruction = step.instruction
        if step.mark is Mark.IF:
            return Effect(*self.all_of((instruction.test,)))  # type: ignore[union-attr]
        handler = _EFFECTS.get(type(instruction)) if step.mark is Mark.PLAIN else None
        if handler is None:
            return NO_EFFECT
        found = handler(self, instruction)
        made = self.points.made[index]
        return found._replace(makes=made) if made else found

    def bits(self, operand: Operand | None) -> tuple[int, int]:
        sure, maybe = bits_of(self.points.value_of(operand))
        return sure & self.tensors, maybe & self.tensors

    def all_of(self, operands: Sequence[Operand | None]) -> tuple[int, int]:
        sure = maybe = 0
        for operand in operands:
            a, b = self.bits(operand)
            sure, maybe = sure | a, maybe | b
        return sure, maybe

    def call_kernel(self, call: CallKernel) -> Effect:
        kernel = self.program.kernels.get(call.kernel)
        if kernel is None:
            reads, maybe = self.all_of(call.arguments)
            return Effect(reads, maybe, fills=reads)
        reads = maybe_reads = writes = maybe_writes = covers = 0
        for parameter, argument in zip(kernel.parameters, call.arguments, strict=False):
            if not isinstance(parameter, KernelBuffer):
                continue
            sure, maybe = self.bits(argument)
            if parameter.reads:
                reads, maybe_reads = reads | sure, maybe_reads | maybe
            if parameter.writes:
                writes, maybe_writes = writes | sure, maybe_writes | maybe
            if parameter.covers and not maybe:
                covers |= self.whole(sure, argument)
        return Effect(reads, maybe_reads, writes, maybe_writes, 0, 0, covers)

    def whole(self, sure: int, argument: Operand) -> int:
        """`sure`, where that is one region, as large as the tensor `argument`, whatever the path."""
        if not sure or sure & (sure - 1):
            return 0
        region = self.points.regions[sure.bit_length() - 1]
        if region.sides:
            return 0
        if region.var is argument:
            return sure
        kind = tensor_type(argument)
        if kind is None or region.nbytes is None or region.nbytes != kind.nbytes:
            return 0
        return sure

    def call_tir(self, call: CallTIR) -> Effect:
        writes = [call.inputs[i] for i in call.inplace if i is not None and 0 <= i < len(call.inputs)]
        return Effect(*self.all_of(call.inputs), *self.all_of(writes))

    def call_packed(self, call: CallPacked) -> Effect:
        reads, maybe = self.all_of(call.arguments)
        writes = [a for index, a in enumerate(call.arguments) if index in call.writes]
        fills = 0 if call.pure or call.writes else reads
        return Effect(reads, maybe, *self.all_of(writes), fills=fills)

    def call_function(self, call: CallFunction) -> Effect:
        reads, maybe = self.all_of(call.arguments)
        summary, callee = self.summaries.get(call.name), self.program.functions.get(call.name)
        if summary is None or callee is None:
            return Effect(reads, maybe)
        writes, maybe_writes = self.written(summary, callee, call)
        return Effect(reads, maybe, writes, maybe_writes)

    def written(self, summary: FunctionSummary, callee: Function, call: CallFunction) -> tuple[int, int]:
        """What of the caller's memory the callee writes."""
        if not (summary.writes or summary.maybe_writes):
            return 0, 0
        pairs = zip(call.arguments, callee.params, strict=False)
        cells = [cell for a, param in pairs for cell in align(self.points.value_of(a), param.type)]
        writes = maybe = 0
        for leaf, cell in enumerate(cells):
            if summary.writes >> leaf & 1:
                writes, maybe = writes | cell.sure, maybe | cell.maybe
            elif summary.maybe_writes >> leaf & 1:
                maybe |= cell.sure | cell.maybe
        return writes & self.tensors, maybe & self.tensors

    def read_all(self, call: CallOperator) -> Effect:
        return Effect(*self.all_of(call.arguments))

    def not_understood(self, construct: NotUnderstood) -> Effect:
        return Effect(*self.all_of(construct.reads))


_EFFECTS: dict[type, Callable[[_Reader, Any], Effect]] = {
    CallFunction: _Reader.call_function,
    CallKernel: _Reader.call_kernel,
    CallOperator: _Reader.read_all,
    CallPacked: _Reader.call_packed,
    CallTIR: _Reader.call_tir,
    NotUnderstood: _Reader.not_understood,
}
