"""Content: what each program point needs memory to hold already, beside what it reads of its own writing.

An effect says what a point may touch; here stands what it surely reads before it has written it.  A kernel
that only loads from a buffer needs its content, one that initialises it first does not.  Looking at a shape,
handing on a handle and killing one read nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from symalloc.analysis.effects import Effect
from symalloc.analysis.gaps import Stretch
from symalloc.analysis.kernel_calls import NO_NEEDS, KernelCalls, KernelCoverages, Needs, surely_meant
from symalloc.analysis.kernel_coverage import Elements
from symalloc.analysis.points_to import PointsTo
from symalloc.analysis.regions import Pointees, RegionKind, leaves_of
from symalloc.analysis.sets import NO_LEAVES, NO_REGIONS, LeafSet, RegionSet, contains, members
from symalloc.analysis.summary import FunctionSummary
from symalloc.program import ir
from symalloc.program.control_flow import PointKind, ProgramPoint
from symalloc.program.tvm_functions import READS_SOME, SHAPE_ARGUMENTS, packed_function
from symalloc.size.cached_property import cached_property


class Content:
    """The content that the points of a function need memory to hold, and how much of it they fill."""

    def __init__(
        self,
        program: ir.Program,
        points_to: PointsTo,
        summaries: Mapping[str, FunctionSummary],
        coverages: KernelCoverages,
    ) -> None:
        self.points_to, self.coverages = points_to, coverages
        self._calls = KernelCalls(points_to, coverages)
        self._reader = _NeedReader(program, points_to, summaries, self._calls)

    @cached_property
    def needs(self) -> Sequence[Needs]:
        """An entry for each point; nothing that plans memory asks for it."""
        return [self._reader.needs(point) for point in self.points_to.cfg.points]

    def reads(self, point: int, number: int) -> Sequence[Stretch]:
        """The parts of a region that a point which needs it reads."""
        return self._stretches(point, number, stores=False) or (Stretch(self.points_to.regions[number]),)

    def loads(self, point: int, number: int) -> Sequence[Stretch]:
        """The parts that hold all that a point may read of a region."""
        call = self.points_to.cfg.points[point].instruction
        found = self._calls.loads(call, number) if isinstance(call, ir.CallKernel | ir.CallTIR) else None
        if found is None or any(one.is_whole for one in found):
            return (Stretch(self.points_to.regions[number]),)
        return found

    def writes(self, point: int, number: int) -> Sequence[Stretch]:
        """The parts of a region that a point which writes it may write."""
        found = self._stretches(point, number, stores=True) if self.needs[point].partly else ()
        if not found or any(one.is_whole for one in found):
            return (Stretch(self.points_to.regions[number]),)
        return found

    def _stretches(self, point: int, number: int, *, stores: bool) -> Sequence[Stretch]:
        call = self.points_to.cfg.points[point].instruction
        if isinstance(call, ir.CallOperator) and call.name in READS_SOME:
            return (Stretch(self.points_to.regions[number], elements=Elements((), exact=False)),)
        if not isinstance(call, ir.CallKernel | ir.CallTIR):
            return ()
        return self._calls.stretches(call, number, stores=stores)


class _NeedReader:
    def __init__(
        self,
        program: ir.Program,
        points_to: PointsTo,
        summaries: Mapping[str, FunctionSummary],
        calls: KernelCalls,
    ) -> None:
        self.program, self.points_to, self.summaries, self.calls = program, points_to, summaries, calls
        self.tensors = ~points_to.storages

    def needs(self, point: ProgramPoint) -> Needs:
        if point.kind is PointKind.INSTRUCTION:
            handler = _NEEDS.get(type(point.instruction))
            return NO_NEEDS if handler is None else handler(self, point.instruction)
        if point.kind is PointKind.EXIT:
            return Needs(self.content((point.operand,)))
        return Needs(self.content(point.uses)) if point.kind is PointKind.BRANCH else NO_NEEDS

    def content(self, operands: Sequence[ir.Operand | None]) -> RegionSet:
        """The tensors that operands surely point to, each on its branch."""
        found = NO_REGIONS
        for operand in operands:
            for leaf in leaves_of(self.points_to.value_of(operand)):
                found |= surely_meant(self.points_to, leaf)
        return found & self.tensors

    def call_packed(self, call: ir.CallPacked) -> Needs:
        known = packed_function(call.name)
        if known.looks:
            return NO_NEEDS
        if known.reads_only or known.writes:
            read = [a for index, a in enumerate(call.arguments) if index not in known.fills]
            return Needs(self.content(read))
        return Needs(doubtful=self.content(call.arguments)) if call.pure else NO_NEEDS

    def call_operator(self, call: ir.CallOperator) -> Needs:
        looked_at = SHAPE_ARGUMENTS.get(call.name, frozenset())
        return Needs(self.content([a for i, a in enumerate(call.arguments) if i not in looked_at]))

    def call_function(self, call: ir.CallFunction) -> Needs:
        summary, callee = self.summaries.get(call.name), self.program.functions.get(call.name)
        if summary is None or callee is None or len(callee.params) != len(call.arguments):
            return self.not_understood(call.arguments)
        found = NO_REGIONS
        for number, (_, leaf) in enumerate(self.points_to.argument_leaves(call.arguments, callee)):
            if contains(summary.needs, number):
                found |= surely_meant(self.points_to, leaf)
        return Needs(found & self.tensors)

    def not_understood(self, operands: Sequence[ir.Operand]) -> Needs:
        given = NO_REGIONS
        for operand in operands:
            given |= self.points_to.regions_of(operand)
        return Needs(given=given)


_NEEDS: dict[type, Callable[[_NeedReader, Any], Needs]] = {
    ir.Assert: lambda reader, i: Needs(reader.content(i.reads)) if i.reads else NO_NEEDS,
    ir.CallFunction: _NeedReader.call_function,
    ir.CallKernel: lambda reader, i: reader.calls.needs(i),
    ir.CallOperator: _NeedReader.call_operator,
    ir.CallPacked: _NeedReader.call_packed,
    ir.CallTIR: lambda reader, i: reader.calls.needs(i),
    ir.NotUnderstood: lambda reader, i: reader.not_understood(i.reads),
}


# -- for the summary of a function -------------------------------------------------------------------------


def needed_parameters(points_to: PointsTo, effects: Sequence[Effect], needs: Sequence[Needs]) -> LeafSet:
    """The leaves of the parameters that some point reads before any point has written to them."""
    early = written = NO_REGIONS
    for effect, need in zip(effects, needs, strict=True):
        early |= points_to.resolve(need.surely) & ~written
        made = effect.written | need.given
        if made & ~written:
            written |= related(points_to, made)
    found = NO_LEAVES
    for number, leaf in enumerate(points_to.parameters):
        if early & related(points_to, leaf.must):
            found |= LeafSet(1 << number)
    return found


def unwritten_leaf(points_to: PointsTo, leaf: Pointees, written: RegionSet) -> bool:
    """True if a handle is a tensor in memory of the function's own, all of it outside `written`."""
    found = [points_to.regions[target.region] for target in points_to.targets(leaf.must, leaf.may)]
    kinds = (RegionKind.FRESH, RegionKind.TENSOR, RegionKind.VIEW)
    if not found or any(region.external or region.kind not in kinds for region in found):
        return False
    return not any(contains(written, region.number) for region in found)


def related(points_to: PointsTo, numbers: RegionSet) -> RegionSet:
    """Regions, phis replaced by what they may be, with their parts and what they are parts of."""
    numbers = points_to.resolve(numbers)
    if not (points_to.views or points_to.storages):
        return numbers
    found = numbers
    for number in members(numbers):
        found |= points_to.ancestors[number] | points_to.descendants[number]
    return found
