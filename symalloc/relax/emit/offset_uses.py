"""Finds the tensors whose users take them at a byte offset, and those that need offset zero.

Only a kernel whose buffer accepts an offset takes one.  Everything else may look at the bare pointer: packed
functions, other Relax functions, operators, constructs that are not understood.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.points_to import PointsTo
from symalloc.analysis.sets import RegionSet, members, region_set
from symalloc.program.control_flow import PointKind
from symalloc.program.ir import Alias, CallKernel, MakeTuple, MatchCast, Operand, TakeField, Var, View

_NONE: frozenset[Var] = frozenset()
_HANDED_ON = frozenset({Alias, MatchCast, View, MakeTuple, TakeField})
_USING = frozenset({PointKind.INSTRUCTION, PointKind.BRANCH})  # the machine reads a condition at its pointer


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetUses:
    """The uses of tensors that lie at an offset.

    `needs_zero_offset`: allocations that some user wants at offset zero.  `offset_parameters`: the positions
    at which each kernel gets the others.
    """

    needs_zero_offset: frozenset[Var]
    offset_parameters: Mapping[str, frozenset[int]]


def offset_uses(
    analysis: FunctionAnalysis, accepts_offset: Callable[[str], Collection[int]], away: Collection[Var]
) -> OffsetUses:
    """The uses of the allocations in `away`; `accepts_offset` gives the positions at which a kernel takes an
    offset.
    """
    points_to = analysis.points_to
    regions = points_to.regions
    wanted = region_set(region.number for region in regions if regions[region.root].var in away)
    finder = _Finder(points_to, wanted)
    for point in analysis.cfg.points:
        instruction = point.instruction
        if type(instruction) is CallKernel:
            finder.kernel(instruction, accepts_offset(instruction.kernel))
        elif point.kind is PointKind.EXIT:
            finder.needs_zero |= finder.held_by(point.operand)
        elif point.uses and type(instruction) not in _HANDED_ON and point.kind in _USING:
            for var in point.uses:
                finder.needs_zero |= finder.held_by(var)
    return OffsetUses(
        needs_zero_offset=frozenset(finder.needs_zero), offset_parameters=finder.offset_parameters()
    )


@dataclass(slots=True)
class _Finder:
    points_to: PointsTo
    away: RegionSet
    needs_zero: set[Var] = field(default_factory=set)
    calls: defaultdict[tuple[str, int], set[Var]] = field(default_factory=lambda: defaultdict(set))
    held: dict[RegionSet, frozenset[Var]] = field(default_factory=dict)

    def held_by(self, operand: Operand | None) -> frozenset[Var]:
        """The allocations at an offset that `operand` may be, or hold."""
        found = self.points_to.regions_of(operand) & self.away
        if not found:
            return _NONE
        held = self.held.get(found)
        if held is None:
            regions = self.points_to.regions
            roots = {regions[number].root for number in members(found)}
            held = frozenset(var for root in roots if (var := regions[root].var) is not None)
            self.held[found] = held
        return held

    def kernel(self, call: CallKernel, accepting: Collection[int]) -> None:
        kernel, held_by = call.kernel, self.held_by
        for position, argument in enumerate(call.arguments):
            found = held_by(argument)
            if not found:
                continue
            if position in accepting and type(argument) is Var:
                self.calls[kernel, position] |= found
            else:
                self.needs_zero |= found

    def offset_parameters(self) -> dict[str, frozenset[int]]:
        """The positions that tensors at an offset arrive at, once it is known which need offset zero."""
        found: dict[str, frozenset[int]] = {}
        for (kernel, position), arrived in self.calls.items():
            if arrived - self.needs_zero:
                found[kernel] = found.get(kernel, frozenset()) | {position}
        return found
