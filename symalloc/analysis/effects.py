"""Which regions each step of a function reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from symalloc.analysis.pointers import PointsTo
from symalloc.analysis.regions import bits_of, indices
from symalloc.analysis.summary import FunctionSummary, align
from symalloc.program.flow import Mark, Step
from symalloc.program.model import (
    AllocFresh,
    CallFunction,
    CallKernel,
    CallOperator,
    CallPacked,
    CallTIR,
    Function,
    KernelBuffer,
    NotUnderstood,
    Operand,
    Ownership,
    Program,
    Var,
)
from symalloc.program.operands import tensor_type, variables_in, variables_of

__all__ = ["NO_EFFECT", "Effect", "effects"]


class Effect(NamedTuple):
    """What one step does to regions; `maybe_` where a function of unknown ownership stands between.

    `fills` are arguments of a function that is not known to write but may: one that holds nothing yet
    counts as written, for it makes no sense to hand over memory without content otherwise.  `makes` are
    regions that come into being filled.  `covers` are regions of which every byte is written, on every
    path through the step: what they held before is needed by nobody behind it.  `keeps` are regions that the
    callee may hold on to when the step is over, other than by returning them as far as is known.
    """

    reads: int = 0
    maybe_reads: int = 0
    writes: int = 0
    maybe_writes: int = 0
    fills: int = 0
    makes: int = 0
    covers: int = 0
    keeps: int = 0


NO_EFFECT = Effect()

# operators that are there still where memory is planned: they look at shapes, or copy to another device
_LOOKING = frozenset(
    {
        "relax.shape_of",
        "relax.shape_to_tensor",
        "relax.size",
        "relax.tensor_to_shape",
        "relax.to_vdevice",
    }
)


def effects(program: Program, points: PointsTo, summaries: Mapping[str, FunctionSummary]) -> Sequence[Effect]:
    """The effect of every step of `points.flow`."""
    reader = _Reader(program, points, summaries)
    return [reader.effect(index, step) for index, step in enumerate(points.flow.steps)]


class _Reader:
    def __init__(self, program: Program, points: PointsTo, summaries: Mapping[str, FunctionSummary]) -> None:
        self.program, self.points, self.summaries = program, points, summaries
        self.tensors = ~points.storages
        self.filled = 0

    @cached_property
    def used(self) -> frozenset[Var]:
        """The variables that something refers to."""
        steps = self.points.flow.steps
        named = (v for s in steps if s.instruction is not None for v in variables_of(s.instruction))
        yielded = (v for s in steps if s.operand is not None for v in variables_in(s.operand))
        return frozenset((*named, *yielded))

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
        self.filled |= found.writes | found.maybe_writes | found.fills | made
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
        keeps = reads | maybe if self.may_keep(call, reads) else 0
        return Effect(reads, maybe, *self.all_of(writes), fills=fills, keeps=keeps)

    def may_keep(self, call: CallPacked, reads: int) -> bool:
        """Whether a packed function may hold on to its arguments, or hand one back.

        One that is given memory without content fills it, as libraries do: what keeps tensors is given some.
        What it hands back matters only where the result is used.
        """
        unknown = call.ownership is Ownership.UNKNOWN
        if unknown and call.var in self.used:
            return True
        if not unknown and not call.keeps:
            return False
        holding = self.points.real(self.filled)
        return not any(self.is_empty(region, holding) for region in indices(self.points.real(reads)))

    def is_empty(self, region: int, holding: int) -> bool:
        """Whether nothing so far has written what an R.builtin.alloc_tensor made."""
        allocated = isinstance(self.points.regions[region].instruction, AllocFresh)
        return allocated and not holding & (self.points.above[region] | self.points.below[region])

    def call_function(self, call: CallFunction) -> Effect:
        reads, maybe = self.all_of(call.arguments)
        summary, callee = self.summaries.get(call.name), self.program.functions.get(call.name)
        if summary is None or callee is None or len(callee.params) != len(call.arguments):
            return Effect(reads, maybe, keeps=reads | maybe)
        writes, maybe_writes, keeps = self.handled(summary, callee, call)
        return Effect(reads, maybe, writes, maybe_writes, keeps=keeps)

    def handled(self, summary: FunctionSummary, callee: Function, call: CallFunction) -> tuple[int, int, int]:
        """What of the caller's memory the callee writes, surely and perhaps, and what it may keep."""
        if not (summary.writes or summary.maybe_writes or summary.keeps):
            return 0, 0, 0
        pairs = zip(call.arguments, callee.params, strict=True)
        cells = [cell for a, param in pairs for cell in align(self.points.value_of(a), param.type)]
        writes = maybe = keeps = 0
        for leaf, cell in enumerate(cells):
            if summary.writes >> leaf & 1:
                writes, maybe = writes | cell.sure, maybe | cell.maybe
            elif summary.maybe_writes >> leaf & 1:
                maybe |= cell.sure | cell.maybe
            if summary.keeps >> leaf & 1:
                keeps |= cell.sure | cell.maybe
        return writes & self.tensors, maybe & self.tensors, keeps & self.tensors

    def call_operator(self, call: CallOperator) -> Effect:
        reads, maybe = self.all_of(call.arguments)
        return Effect(reads, maybe, keeps=0 if call.name in _LOOKING else reads | maybe)

    def not_understood(self, construct: NotUnderstood) -> Effect:
        reads, maybe = self.all_of(construct.reads)
        return Effect(reads, maybe, keeps=reads | maybe)


_EFFECTS: dict[type, Callable[[_Reader, Any], Effect]] = {
    CallFunction: _Reader.call_function,
    CallKernel: _Reader.call_kernel,
    CallOperator: _Reader.call_operator,
    CallPacked: _Reader.call_packed,
    CallTIR: _Reader.call_tir,
    NotUnderstood: _Reader.not_understood,
}
