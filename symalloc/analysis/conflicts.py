"""Reuse conflicts: memory that one thing writes while another still needs what it holds.

What may be such a pair is read off liveness, which keeps one set for all paths.  Each is then held
against the paths: there must be one that first writes the one region, then the other, then reads the
first, and that control can take.

`FeasiblePaths` is the one notion of "on some path" that findings rest on: Ifs on one condition go the same
way, and no path contradicts itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeAlias

from symalloc.analysis.effects import Effect, EffectReader
from symalloc.analysis.facts import NO_TESTS, BranchTests, FunctionFacts
from symalloc.analysis.kernels.overlap import is_known
from symalloc.analysis.points_to import PointsToBuilder
from symalloc.analysis.regions import Consumed, FunctionSummary, PointsTo, Target
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members
from symalloc.program import ir
from symalloc.program.control_flow import EVERY_PATH, ControlFlowGraph, PathCondition, consistent
from symalloc.size.condition import Condition, gt, lt, negate

Possible: TypeAlias = Callable[[tuple[Condition, ...]], bool | None]
"""Return whether conditions can hold together; None where that is not decided."""

MOST_STEPS = 256
"""The number of paths that `uncovered` looks at before it gives up."""


@dataclass(frozen=True, slots=True)
class UncoveredPath:
    """The answer of `FeasiblePaths.uncovered`; not `decided` where the search was given up."""

    path: PathCondition | None
    decided: bool = True


class FeasiblePaths:
    """Tells which paths through a function are possible.

    Without `facts` every If is independent of the others.  `possible` judges conditions on sizes.  `at`: the
    branches that lead to each point.
    """

    def __init__(
        self,
        cfg: ControlFlowGraph,
        facts: FunctionFacts | None = None,
        tests: BranchTests = NO_TESTS,
        possible: Possible = lambda _: None,
    ) -> None:
        self.cfg, self.facts, self.tests, self.possible, self.at = cfg, facts, tests, possible, cfg.paths
        self._standing: dict[tuple[PathCondition, int | None], bool | None] = {}

    def feasible(self, path: PathCondition, until: int | None = None) -> bool:
        """False where no path takes all of these branches, and gets to the point `until` if one is given."""
        return self._stands(self.whole(path, until), until) is not False

    def reaches(self, first: int, second: int) -> bool:
        """True if some path goes through `first`, then through `second`."""
        return first < second and self.feasible(self.at[first] | self.at[second], second)

    def uncovered(
        self, path: PathCondition, others: Iterable[PathCondition], until: int | None = None
    ) -> UncoveredPath:
        """A feasible path that takes all of `path` and gets to `until`, and takes none of `others` in full.

        Its `path` holds the branches that matter; it is None where there is no such path.
        """
        if not self.cfg.joins:  # one path, which takes no branch
            return UncoveredPath(None if any(True for _ in others) else path)
        start = self.whole(path, until)
        if self._stands(start, until) is False:
            return UncoveredPath(None)
        avoided = [self.whole(other) for other in others]
        pending = [start]
        for _ in range(MOST_STEPS):
            if not pending:
                return UncoveredPath(None)
            taken = pending.pop()
            rest = next((tuple(sorted(o - taken)) for o in avoided if consistent(o | taken)), None)
            if rest is None:
                return UncoveredPath(taken)
            ways = (
                self.whole(taken | {*rest[:index], (branch, not side)})
                for index, (branch, side) in enumerate(rest)
            )
            pending += reversed([way for way in ways if self._stands(way, until) is not False])
        return UncoveredPath(start, decided=False)

    def doubt(self, path: PathCondition, until: int | None = None) -> str | None:
        """The reason for which control may not take `path`; None where nothing speaks against it."""
        whole = self.whole(path, until)
        if len(whole) < 2:
            return None
        if self._stands(whole, until) is None:
            return "whether the branches on this path can be taken together is not decided"
        pair = self.tests.related([branch for branch, _ in sorted(whole)])
        if pair is None:
            return None
        one, other = (self.tests.name(self.cfg, branch) for branch in pair)
        return f"the conditions {one} and {other} are computed from the same values"

    def text(self, path: PathCondition) -> str:
        """The path in words: "`cond` is true and `n <= 4` is false"; empty for one that takes no branch."""
        said = [(self.tests.name(self.cfg, branch), then) for branch, then in sorted(self.whole(path))]
        parts = [f"{name} is {'true' if then else 'false'}" for name, then in dict.fromkeys(said)]
        return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))

    def conditions(self, path: PathCondition, until: int | None = None) -> tuple[Condition, ...]:
        """The conditions on sizes, and on what Ifs test, that hold on `path`, in front of `until`."""
        if self.facts is None:
            return ()
        known = self.facts.before[until].guards if until is not None else ()
        tested = (self.facts.tests.get(branch) for branch, _ in sorted(path))
        sides = zip(tested, (then for _, then in sorted(path)), strict=True)
        more = (test if then else negate(test) for test, then in sides if test is not None)
        parts = (part for condition in more for part in (condition.conjuncts or (condition,)))
        return tuple(dict.fromkeys((*known, *parts)))

    def whole(self, path: PathCondition, until: int | None = None) -> PathCondition:
        """`path` with the branches that lead to those on it, and to the point `until`."""
        if until is not None and self.cfg.joins:
            path |= self.at[until]
        for branch, _ in path if path else ():
            if not self.at[branch] <= path:
                path |= self.at[branch]
        return path

    def _stands(self, path: PathCondition, until: int | None) -> bool | None:
        """Return whether control can take `path`; None where that is not decided."""
        if not path and (until is None or self.facts is None or not self.facts.before[until].guards):
            return True
        if not consistent(path):
            return False
        key = (path, until)
        if key not in self._standing:
            last = max(path)[0] if until is None else until
            self._standing[key] = self._together(self.conditions(path, last))
        return self._standing[key]

    def _together(self, conditions: tuple[Condition, ...]) -> bool | None:
        """Return whether conditions can hold together, judged by sight where that will do."""
        known = frozenset(conditions)
        if any(c.as_bool is False or negate(c) in known for c in conditions):
            return False
        seen: set[str] = set()
        for condition in conditions:
            if not condition.symbols <= self.tests.opaque or seen & condition.symbols:
                return self.possible(conditions)
            seen |= condition.symbols
        return True


class ReuseConflict(NamedTuple):
    """Point `writer` writes root `second`, and `reader` touches root `first` there or later.

    `certain` unless it takes a function of unknown ownership to return its argument.
    """

    first: int
    second: int
    writer: int
    reader: int
    certain: bool


class Access(NamedTuple):
    """A point that reads or writes `region`, on the branches `path`; -1 is the entry of the function."""

    point: int
    region: int
    path: PathCondition
    certain: bool


class ReuseConflicts:
    """Finds paths that write, overwrite and read; `paths` are those that control can take."""

    def __init__(self, points_to: PointsTo, effects: Sequence[Effect], paths: FeasiblePaths) -> None:
        self.points_to, self.effects, self.paths = points_to, effects, paths

    # -- regions of one root -------------------------------------------------------------------------------

    def siblings(self, number: int) -> RegionSet:
        """The regions of the same root that are neither parts of a region nor what it is part of."""
        points_to = self.points_to
        others = points_to.descendants[points_to.regions[number].root] & ~points_to.storages
        return others & ~points_to.ancestors[number] & ~points_to.descendants.get(number, NO_REGIONS)

    def share(self, one: int, other: int, path: PathCondition, point: int) -> bool | None:
        """True where two regions of one root have a byte in common for some sizes, on `path`, in front of
        `point`; None where that is not decided.
        """
        first, second = self.points_to.regions[one], self.points_to.regions[other]
        if first.offset is None or second.offset is None or first.nbytes is None or second.nbytes is None:
            return None
        filled = gt(first.nbytes, 0), gt(second.nbytes, 0)
        meet = lt(first.offset, second.offset + second.nbytes), lt(second.offset, first.offset + first.nbytes)
        known = self.paths.conditions(self.paths.whole(path, point), point)
        return self.paths.possible((*known, *meet, *filled))

    def beside(self, number: int, path: PathCondition, point: int) -> tuple[RegionSet, RegionSet]:
        """The siblings of a region that share bytes with it for some sizes, and those of which that is not
        decided.
        """
        sure = unsure = NO_REGIONS
        for other in members(self.siblings(number)):
            met = self.share(number, other, path, point)
            sure |= RegionSet(1 << other) if met else NO_REGIONS
            unsure |= RegionSet(1 << other) if met is None else NO_REGIONS
        return sure, unsure

    def reads_from(self, region: int, writer: int) -> Sequence[Access]:
        """The reads of a region behind a point that writes, those at the point among them, in order.

        Not those of a kernel of the module: its own arguments are held against each other elsewhere.
        """
        effect, call = self.effects[writer], self.points_to.cfg.points[writer].instruction
        apart = isinstance(call, ir.CallKernel | ir.CallTIR) and bool(effect.writes | effect.may_writes)
        reads = self.reads.get(region, ())
        return sorted((r for r in reads if r.point >= writer + apart), key=lambda access: access.point)

    def lost(self, region: int, point: int, read: Access, path: PathCondition) -> PathCondition | None:
        """A feasible `path` on which nothing between `point` and `read` writes all of `region` anew."""
        regions = members(self.points_to.ancestors[region])
        between = (other for r in regions for other in self.must_defs.get(r, ()))
        again = [other.path for other in between if point < other.point < read.point]
        return self.paths.uncovered(path, again, read.point).path

    def stale_reads(self, view: Target) -> Iterator[tuple[Access, Access]]:
        """The writes of a view, each with the reads behind it, on its path, of the tensor that the view is
        part of, or of another part with bytes of it.

        The `path` of such a read is that of both.  Tensors that take turns on a storage are no parts.
        """
        root, storages = self.points_to.regions[view.region].root, self.points_to.storages
        whole = self.points_to.ancestors[view.region] & ~RegionSet(1 << view.region) & ~storages
        for write in self.accesses_to(view.region, self.writes):
            sure = unsure = NO_REGIONS
            if not contains(storages, root):
                sure, unsure = self.beside(view.region, write.path | view.path, write.point)
            others = whole | sure | unsure
            reads = [
                read._replace(certain=read.certain and not contains(unsure, number))
                for number in members(others)
                for read in self.reads_from(number, write.point)
            ]
            for read in reads:
                path = self.lost(read.region, write.point, read, write.path | read.path | view.path)
                if path is not None:
                    yield write, read._replace(path=path)

    # -- takeover: one root in the memory of another ---------------------------------------------------------

    def takeover(self, writes: int, wanted: int) -> Iterator[ReuseConflict]:
        """The conflicts that keep root `writes` from taking over the memory of root `wanted`.

        What `wanted` holds is taken to be needed whenever something touches it: to write all of it anew would
        spoil what was written into its memory.  Conflicts within one point come last.
        """
        found = {
            (w.point == t.point, w.point, t.point, not (w.certain and t.certain))
            for w in self.accesses_to(writes, self.writes)
            for t in self.accesses_to(wanted)
            if t.point >= w.point and self.paths.feasible(w.path | t.path)
        }
        for _, writer, reader, uncertain in sorted(found):
            yield ReuseConflict(wanted, writes, writer, reader, not uncertain)

    def on_one_path(self, one: int, other: int) -> bool:
        """True if some path touches both roots."""
        others = self.accesses_to(other)
        return any(self.paths.feasible(a.path | b.path) for a in self.accesses_to(one) for b in others)

    def capturing(self, root: int) -> Iterator[int]:
        """The points whose callee may hold on to a root when they are over."""
        for point, effect in enumerate(self.effects):
            if effect.captures and root in self.points_to.roots(effect.captures):
                yield point

    def writes_to(self, regions: RegionSet) -> Iterator[Access]:
        """The writes of real regions among `regions` that some path takes, by what is known to write."""
        behind = regions | self.points_to.phis
        for point, effect in enumerate(self.effects):
            if (effect.writes | effect.may_writes) & behind:
                for target in self.points_to.targets(effect.writes, effect.may_writes):
                    path = self.paths.at[point] | target.path
                    if contains(regions, target.region) and self.paths.feasible(path, point):
                        yield Access(point, target.region, path, target.certain)

    # -- accesses ------------------------------------------------------------------------------------------

    @cached_property
    def writes(self) -> Mapping[int, Sequence[Access]]:
        """The writes of each region, in order; parameters are written on entry."""
        given = [(-1, leaf.must, leaf.may) for leaf in self.points_to.parameters]
        behind = ((n, e.writes | e.may_defs | e.defs, e.may_writes) for n, e in enumerate(self.effects))
        return self._by_region(chain(given, behind))

    @cached_property
    def reads(self) -> Mapping[int, Sequence[Access]]:
        """The reads of each region, in order."""
        return self._by_region(
            (n, e.reads & ~e.looks, e.may_reads & ~e.looks) for n, e in enumerate(self.effects)
        )

    @cached_property
    def must_defs(self) -> Mapping[int, Sequence[Access]]:
        """The writes of all of a region, in order."""
        return self._by_region((n, effect.must_defs, NO_REGIONS) for n, effect in enumerate(self.effects))

    def _by_region(
        self, accessed: Iterable[tuple[int, RegionSet, RegionSet]]
    ) -> Mapping[int, Sequence[Access]]:
        found: dict[int, list[Access]] = {}
        for point, must, may in accessed:
            around = self.paths.at[point] if point >= 0 else EVERY_PATH
            for number, path, certain in self.points_to.targets(must, may) if must or may else ():
                found.setdefault(number, []).append(Access(point, number, path | around, certain))
        return found

    def accesses_to(self, whole: int, *tables: Mapping[int, Sequence[Access]]) -> list[Access]:
        """The reads and writes of a region and its parts behind the entry, or those in `tables`."""
        numbers = tuple(members(self.points_to.descendants[whole]))
        chosen = tables or (self.reads, self.writes)
        return [a for table in chosen for n in numbers for a in table.get(n, ()) if a.point >= 0]


# -- in-place calls ----------------------------------------------------------------------------------------


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
        versions = PointsToBuilder(program, points_to.cfg, summaries, versions=True).build()
        conflicts = ReuseConflicts(versions, EffectReader(program, versions, summaries).read(), paths)
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
                beside, unsure = self.conflicts.beside(target.region, path, one.point)
                sure = self.family(RegionSet(1 << target.region)) | beside
                stale = sure | unsure
                for access in (
                    *self.shared(one, stale, path, consumed[:index]),
                    *self.reads(one.point, stale, path),
                    *self.clobbering(one.point, stale, path),
                ):
                    known = access.certain and contains(sure, access.region)
                    certain = target.certain and known and self.touches(access.point, stale)
                    yield StaleUse(
                        one.point, access.point, one.operand, stale, self.versions, certain, access.path
                    )

    def family(self, regions: RegionSet) -> RegionSet:
        """Regions with their parts, and with what they are parts of."""
        return self.versions.family(regions) & ~self.versions.storages

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
            for read in self.conflicts.reads.get(number, ()):
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
        reads = [r for number in members(made) for r in self.conflicts.reads.get(number, ())]
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
            old |= self.family(one.leaf.must | one.leaf.may)
        return tuple(self.conflicts.writes_to(old))

    def newer(self, writer: int) -> RegionSet:
        """The versions that the call at `writer` makes, and those that others make of these."""
        made = self.versions.defs.get(writer, NO_REGIONS)
        for one in self.versions.consumed:
            if one.point > writer and self.family(one.leaf.must | one.leaf.may) & made:
                made |= self.versions.defs.get(one.point, NO_REGIONS)
        return self.family(made)
