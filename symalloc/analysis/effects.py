"""Which regions each step of a function reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from symalloc.analysis.pointers import PointsTo
from symalloc.analysis.regions import members, pointees_of
from symalloc.analysis.summary import FunctionSummary, align
from symalloc.program.control_flow import PointKind, ProgramPoint
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
from symalloc.program.tvm_functions import OPERATORS_THAT_CAPTURE_NOTHING


class Effect(NamedTuple):
    """What one step does to regions; `may_` where a function of unknown ownership stands between.

    `may_defs` are arguments of a function that is not known to write but may: one that holds nothing yet
    counts as written, for it makes no sense to hand over memory without content otherwise.  `defs` are
    regions that come into being filled.  `must_defs` are regions of which every byte is written, on every
    path through the step: what they held before is needed by nobody behind it.  `captures` are regions that
    the callee may hold on to when the step is over, other than by returning them as far as is known.
    """

    reads: int = 0
    may_reads: int = 0
    writes: int = 0
    may_writes: int = 0
    may_defs: int = 0
    defs: int = 0
    must_defs: int = 0
    captures: int = 0


NO_EFFECT = Effect()


def effects(
    program: Program, points_to: PointsTo, summaries: Mapping[str, FunctionSummary]
) -> Sequence[Effect]:
    """The effect of every step of `points_to.cfg`."""
    reader = _Reader(program, points_to, summaries)
    return [reader.effect(index, step) for index, step in enumerate(points_to.cfg.points)]


class _Reader:
    def __init__(
        self, program: Program, points_to: PointsTo, summaries: Mapping[str, FunctionSummary]
    ) -> None:
        self.program, self.points_to, self.summaries = program, points_to, summaries
        self.tensors = ~points_to.storages
        self.filled = 0

    @cached_property
    def used(self) -> frozenset[Var]:
        """The variables that something refers to."""
        steps = self.points_to.cfg.points
        named = (v for s in steps if s.instruction is not None for v in variables_of(s.instruction))
        yielded = (v for s in steps if s.operand is not None for v in variables_in(s.operand))
        return frozenset((*named, *yielded))

    def effect(self, index: int, step: ProgramPoint) -> Effect:
        if step.kind is PointKind.EXIT:
            return Effect(*self.all_of((step.operand,)))
        instruction = step.instruction
        if step.kind is PointKind.BRANCH:
            return Effect(*self.all_of((instruction.test,)))  # type: ignore[union-attr]
        handler = _EFFECTS.get(type(instruction)) if step.kind is PointKind.INSTRUCTION else None
        if handler is None:
            return NO_EFFECT
        found = handler(self, instruction)
        made = self.points_to.defs[index]
        self.filled |= found.writes | found.may_writes | found.may_defs | made
        return found._replace(defs=made) if made else found

    def bits(self, operand: Operand | None) -> tuple[int, int]:
        must, may = pointees_of(self.points_to.value_of(operand))
        return must & self.tensors, may & self.tensors

    def all_of(self, operands: Sequence[Operand | None]) -> tuple[int, int]:
        must = may = 0
        for operand in operands:
            a, b = self.bits(operand)
            must, may = must | a, may | b
        return must, may

    def call_kernel(self, call: CallKernel) -> Effect:
        kernel = self.program.kernels.get(call.kernel)
        if kernel is None:
            reads, may = self.all_of(call.arguments)
            return Effect(reads, may, may_defs=reads)
        reads = may_reads = writes = may_writes = covers = 0
        for parameter, argument in zip(kernel.parameters, call.arguments, strict=False):
            if not isinstance(parameter, KernelBuffer):
                continue
            must, may = self.bits(argument)
            if parameter.reads:
                reads, may_reads = reads | must, may_reads | may
            if parameter.writes:
                writes, may_writes = writes | must, may_writes | may
            if parameter.must_def and not may:
                covers |= self.whole(must, argument)
        return Effect(reads, may_reads, writes, may_writes, 0, 0, covers)

    def whole(self, must: int, argument: Operand) -> int:
        """`must`, where that is one region, as large as the tensor `argument`, whatever the path."""
        if not must or must & (must - 1):
            return 0
        region = self.points_to.regions[must.bit_length() - 1]
        if region.path:
            return 0
        if region.var is argument:
            return must
        kind = tensor_type(argument)
        if kind is None or region.nbytes is None or region.nbytes != kind.nbytes:
            return 0
        return must

    def call_tir(self, call: CallTIR) -> Effect:
        writes = [call.inputs[i] for i in call.inplace if i is not None and 0 <= i < len(call.inputs)]
        return Effect(*self.all_of(call.inputs), *self.all_of(writes))

    def call_packed(self, call: CallPacked) -> Effect:
        reads, may = self.all_of(call.arguments)
        writes = [a for index, a in enumerate(call.arguments) if index in call.writes]
        fills = 0 if call.pure or call.writes else reads
        keeps = reads | may if self.may_keep(call, reads) else 0
        return Effect(reads, may, *self.all_of(writes), may_defs=fills, captures=keeps)

    def may_keep(self, call: CallPacked, reads: int) -> bool:
        """Whether a packed function may hold on to its arguments, or hand one back.

        One that is given memory without content fills it, as libraries do: what keeps tensors is given some.
        What it hands back matters only where the result is used.
        """
        unknown = call.ownership is Ownership.UNKNOWN
        if unknown and call.var in self.used:
            return True
        if not unknown and not call.may_capture:
            return False
        holding = self.points_to.resolve(self.filled)
        return not any(self.is_empty(region, holding) for region in members(self.points_to.resolve(reads)))

    def is_empty(self, region: int, holding: int) -> bool:
        """Whether nothing so far has written what an R.builtin.alloc_tensor made."""
        allocated = isinstance(self.points_to.regions[region].instruction, AllocFresh)
        return allocated and not holding & (
            self.points_to.ancestors[region] | self.points_to.descendants[region]
        )

    def call_function(self, call: CallFunction) -> Effect:
        reads, may = self.all_of(call.arguments)
        summary, callee = self.summaries.get(call.name), self.program.functions.get(call.name)
        if summary is None or callee is None or len(callee.params) != len(call.arguments):
            return Effect(reads, may, captures=reads | may)
        writes, may_writes, keeps = self.handled(summary, callee, call)
        return Effect(reads, may, writes, may_writes, captures=keeps)

    def handled(self, summary: FunctionSummary, callee: Function, call: CallFunction) -> tuple[int, int, int]:
        """What of the caller's memory the callee writes, surely and perhaps, and what it may keep."""
        if not (summary.writes or summary.may_writes or summary.captures):
            return 0, 0, 0
        pairs = zip(call.arguments, callee.params, strict=True)
        cells = [cell for a, param in pairs for cell in align(self.points_to.value_of(a), param.type)]
        writes = may = keeps = 0
        for leaf, cell in enumerate(cells):
            if summary.writes >> leaf & 1:
                writes, may = writes | cell.must, may | cell.may
            elif summary.may_writes >> leaf & 1:
                may |= cell.must | cell.may
            if summary.captures >> leaf & 1:
                keeps |= cell.must | cell.may
        return writes & self.tensors, may & self.tensors, keeps & self.tensors

    def call_operator(self, call: CallOperator) -> Effect:
        reads, may = self.all_of(call.arguments)
        return Effect(reads, may, captures=0 if call.name in OPERATORS_THAT_CAPTURE_NOTHING else reads | may)

    def not_understood(self, construct: NotUnderstood) -> Effect:
        reads, may = self.all_of(construct.reads)
        return Effect(reads, may, captures=reads | may)


_EFFECTS: dict[type, Callable[[_Reader, Any], Effect]] = {
    CallFunction: _Reader.call_function,
    CallKernel: _Reader.call_kernel,
    CallOperator: _Reader.call_operator,
    CallPacked: _Reader.call_packed,
    CallTIR: _Reader.call_tir,
    NotUnderstood: _Reader.not_understood,
}
