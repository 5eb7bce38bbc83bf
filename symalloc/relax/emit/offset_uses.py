"""Finds the tensors whose users take them at a byte offset, and those that need offset zero.

Only a kernel whose buffer accepts an offset takes one.  Everything else may look at the bare pointer: packed
functions, other Relax functions, operators, constructs that are not understood.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.regions import PointsTo
from symalloc.analysis.sets import NO_REGIONS, RegionSet, members, region_set
from symalloc.program.ir import (
    Alias,
    AllocFresh,
    CallKernel,
    MakeTuple,
    MatchCast,
    Operand,
    TakeField,
    Var,
    View,
)
from symalloc.program.operands import variables_of

_HANDED_ON = frozenset({AllocFresh, Alias, MatchCast, View, MakeTuple, TakeField})


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
    finder = _Finder(points_to, region_set(r.number for r in regions if regions[r.root].var in away))
    cfg = analysis.cfg
    for _, instruction in cfg.instructions:
        if type(instruction) is CallKernel:
            finder.kernel(instruction, accepts_offset)
        elif type(instruction) not in _HANDED_ON:
            finder.look(*variables_of(instruction))
    for branch in cfg.joins:  # the machine reads a condition at its pointer
        finder.look(*cfg.points[branch].uses)
    finder.look(cfg.function.body.result)
    return finder.found()


@dataclass(slots=True)
class _Finder:
    """Follows the regions in `away`: of those in `needs_zero` something sees the bare pointer."""

    points_to: PointsTo
    away: RegionSet
    needs_zero: RegionSet = NO_REGIONS
    calls: defaultdict[str, dict[int, RegionSet]] = field(default_factory=lambda: defaultdict(dict))

    def look(self, *operands: Operand) -> None:
        """Take up what looks at the pointer of all that `operands` may be, or hold."""
        for operand in operands:
            self.needs_zero |= self.points_to.regions_of(operand) & self.away

    def kernel(self, call: CallKernel, accepts_offset: Callable[[str], Collection[int]]) -> None:
        away = [
            (position, found)
            for position, argument in enumerate(call.arguments)
            if (found := self.points_to.regions_of(argument) & self.away)
        ]
        if not away:  # most kernels need not be read
            return
        accepting, given = accepts_offset(call.kernel), self.calls[call.kernel]
        for position, found in away:
            if position in accepting and type(call.arguments[position]) is Var:
                given[position] = given.get(position, NO_REGIONS) | found
            else:
                self.needs_zero |= found

    def found(self) -> OffsetUses:
        """The uses that were met, now that it is known which allocations need offset zero."""
        regions = self.points_to.regions
        roots = {regions[number].root for number in members(self.needs_zero)}
        zero = region_set(r.number for r in regions if r.root in roots) if roots else NO_REGIONS
        parameters: dict[str, frozenset[int]] = {}
        lent = self.away & ~zero
        for kernel, given in self.calls.items():
            found = frozenset(p for p, arrived in given.items() if arrived & lent)
            if found:
                parameters[kernel] = found
        needing = frozenset(var for root in roots if (var := regions[root].var) is not None)
        return OffsetUses(needs_zero_offset=needing, offset_parameters=parameters)
