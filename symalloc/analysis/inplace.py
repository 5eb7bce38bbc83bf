"""In-place calls: who uses what they have overwritten by another name than that of their result.

R.call_tir_inplace and R.call_inplace_packed are pure to TVM: their operand is dead behind the call.  Here
the result counts as memory of its own, a new version of the operand: each use tells which version it means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from symalloc.analysis.conflicts import Access, ReuseConflicts
from symalloc.analysis.effects import find_effects
from symalloc.analysis.feasibility import FeasiblePaths
from symalloc.analysis.kernel_overlap import is_known
from symalloc.analysis.paths import PathCondition
from symalloc.analysis.points_to import PointsTo
from symalloc.analysis.points_to_builder import find_points_to
from symalloc.analysis.regions import Consumed
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members
from symalloc.analysis.summary import FunctionSummary
from symalloc.program import ir
from symalloc.size.cached_property import cached_property


class StaleUse(NamedTuple):
    """The in-place call at `writer` overwrites `operand`, and `reader` uses what that was before.

    `reader` is `writer` where two of its results lie in one operand.  `regions` are those of `versions`,
    which tells what was before the call from what is behind it.  `certain` unless it takes a function of
    unknown ownership to return its argument.  `path` holds the branches that it takes, up to `reader`.
    """

    writer: int
    reader: int
    operand: ir.Operand
    regions: RegionSet
    versions: PointsTo
    certain: bool
    path: PathCondition


def stale_uses(
    program: ir.Program, points_to: PointsTo, summaries: Mapping[str, FunctionSummary], paths: FeasiblePaths
) -> Iterator[StaleUse]:
    """The uses behind in-place calls of what these have overwritten; the first certain one goes first."""
    if points_to.consumed:
        parameters = {name: tuple(p.type for p in f.params) for name, f in program.functions.items()}
        versions = find_points_to(points_to.cfg, summaries, parameters, versions=True)
        conflicts = ReuseConflicts(versions, find_effects(program, versions, summaries), paths)
        yield from sorted(
            _StaleUses(conflicts, program.kernels).find(), key=lambda use: (not use.certain, use.reader)
        )


class _StaleUses:
    """Holds the accesses to each version of what is updated in place against the paths."""

    def __init__(self, conflicts: ReuseConflicts, kernels: Mapping[str, ir.Kernel]) -> None:
        self.conflicts, self.versions, self.kernels = conflicts, conflicts.points_to, kernels

    def find(self) -> Iterator[StaleUse]:
        consumed = self.versions.consumed
        for index, one in enumerate(consumed):
            for target in self.versions.targets(one.leaf.must, one.leaf.may):
                path = self.conflicts.paths.at[one.point] | target.path
                stale = self.family(RegionSet(1 << target.region))
                for access in (
                    *self.shared(one, stale, path, consumed[:index]),
                    *self.reads(one.point, stale, path),
                    *self.clobbering(one.point, stale, path),
                ):
                    certain = target.certain and access.certain and self.touches(access.point, stale)
                    yield StaleUse(
                        one.point, access.point, one.operand, stale, self.versions, certain, access.path
                    )

    def family(self, regions: RegionSet) -> RegionSet:
        """Regions with their parts, and with what they are parts of."""
        found = NO_REGIONS
        for number in members(regions):
            found |= self.versions.ancestors[number] | self.versions.descendants[number]
        return found & ~self.versions.storages

    def shared(
        self, one: Consumed, stale: RegionSet, path: PathCondition, before: Sequence[Consumed]
    ) -> Iterator[Access]:
        """The memory of another result of the same call that is the operand, too."""
        for other in before:
            if other.point == one.point:
                for target in self.versions.targets(other.leaf.must, other.leaf.may):
                    around = path | target.path
                    if contains(stale, target.region) and self.conflicts.paths.feasible(around, one.point):
                        yield Access(one.point, target.region, around, target.certain)

    def reads(self, writer: int, stale: RegionSet, path: PathCondition) -> Iterator[Access]:
        """The reads of old content behind `writer`, each with the whole path."""
        for number in members(stale):
            for read in self.conflicts.accesses.reads.get(number, ()):
                if read.point > writer:
                    lost = self.conflicts.lost(number, writer, read, path | read.path)
                    if lost is not None:
                        yield read._replace(path=lost)

    def touches(self, point: int, regions: RegionSet) -> bool:
        """False for a kernel of which it is not known that it accesses `regions`."""
        call = self.versions.cfg.points[point].instruction
        if not isinstance(call, ir.CallKernel) or call.kernel not in self.kernels:
            return True
        kernel = self.kernels[call.kernel]
        pairs = zip(range(len(kernel.parameters)), call.arguments, strict=False)
        found = (p for p, argument in pairs if self.versions.regions_of(argument) & regions)
        return any(is_known(kernel, p, "load") or is_known(kernel, p, "store") for p in found)

    def clobbering(self, writer: int, stale: RegionSet, path: PathCondition) -> Iterator[Access]:
        """The writes of old regions behind `writer`, before what it made is read; with the whole path."""
        writes = [w for w in self.stale_writes if contains(stale, w.region) and w.point > writer]
        made = self.newer(writer) if writes else NO_REGIONS
        reads = [r for number in members(made) for r in self.conflicts.accesses.reads.get(number, ())]
        for write in writes:
            for read in reads:
                if read.point >= write.point:
                    around = path | write.path | read.path
                    lost = self.conflicts.lost(read.region, write.point, read, around)
                    if lost is not None:
                        yield write._replace(path=lost)

    @cached_property
    def stale_writes(self) -> Sequence[Access]:
        """The writes of all that some in-place call overwrites."""
        old = NO_REGIONS
        for one in self.versions.consumed:
            old |= self.family(self.versions.resolve(one.leaf.must | one.leaf.may))
        return tuple(self.conflicts.writes_to(old))

    def newer(self, writer: int) -> RegionSet:
        """The versions that the call at `writer` makes, and those that others make of these."""
        made = self.versions.defs[writer]
        for one in self.versions.consumed:
            if one.point > writer and self.family(self.versions.resolve(one.leaf.must | one.leaf.may)) & made:
                made |= self.versions.defs[one.point]
        return self.family(made)
