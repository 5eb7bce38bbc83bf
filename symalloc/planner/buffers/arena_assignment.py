"""Assign each tensor to an arena, so that a call takes no more than it would without a plan.

One arena for all, held from its first use to its last, takes the most that is live at one moment; but results
are made while it is held, sizes become known, one branch needs less than the other, and memory is taken that
no plan places.  What it takes then is more than each tensor would by itself.  So assignments are tried, those
with few arenas first:

1. one arena;
2. tensors that are live when most is taken move into the memory of a result, in which they end before it is
   made;
3. a few arenas, large tensors first (`few_arenas`); and where few tensors have many symbols, each as in 5,
   but judged by coefficients, which say something of every binding (`CoefficientBound`);
4. an arena that ends before results are made, and tensors that outlive it (`early_arena`); where there are
   many tensors, this comes before 3;
5. each tensor goes into the arena that grows least by it, where nothing exceeds the limit; else into a new
   one (`first_fit`);
6. each tensor by itself.

Then arenas are joined, two by two, as long as the call keeps its limit (`merged_arenas`).

Each is judged by the bytes taken at every moment on every path over the limit (`CallTimeline`), at sample
bindings.  Others at which the chosen one takes more are looked for (`worst_shapes`), and the choice is made
again with those among the samples.  The last assignment always keeps the limit.  How many arenas that
is worth, `FEW`, `MEMBERS_EACH` and `TOLERABLE` in `arena_attempts` say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import lt
from typing import NamedTuple

from symalloc.planner.buffers.arena_attempts import (
    EXACT,
    ArenaAttempts,
    Attempt,
    Groups,
    by_definition,
    fewest_arenas,
)
from symalloc.planner.buffers.call_columns import CallColumns
from symalloc.planner.buffers.call_timeline import CallProfile, CallTimeline, sizes_of
from symalloc.planner.buffers.candidate import Candidate, Memory
from symalloc.planner.buffers.coefficient_bound import CoefficientBound
from symalloc.planner.buffers.merged_arenas import merged_arenas
from symalloc.planner.buffers.path_lifetimes import PathLifetimes
from symalloc.planner.buffers.sample_shapes import ExtentBounds, SizeTable, sample_table
from symalloc.planner.buffers.shape_search import ShapeSearch
from symalloc.planner.grid import sample_grid
from symalloc.planner.memory_plan import Buffer
from symalloc.program.control_flow import BlockNesting
from symalloc.program.ir import Var
from symalloc.prover.domain import Domain

MOST_CHOICES = 4  # each judged where the one before exceeds the limit
MANY, CHOICES_OF_MANY = 400, 2  # tensors, of which so many choices are made
MANY_SYMBOLS, FEW_TENSORS = 4, 64  # sizes that samples say little about
TOLERABLE_AT_LAST = 0.02  # beyond the limit: the last choice of many tensors
MOST_LENT = 32  # arenas that are tried one by one


class Assigned(NamedTuple):
    """The buffers arena by arena, each with the number of its `arena` and its `defined_by`; and the results
    whose memory holds nothing else (`lone`).

    `profile` tells what a call takes of the function, where others call it; `spread` is how many times their
    floor all arenas take together at the worst of the sample bindings.
    """

    buffers: Sequence[Buffer]
    lone: Sequence[Memory]
    profile: CallProfile | None
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """The assignments that are given up, as a plan of them was no good.

    `barred` are results whose memory is not to be used.  `passed` good ones are passed over, whose arenas
    could not be packed tight.  With `merging` arenas are joined where that takes no more.
    """

    barred: frozenset[Var] = frozenset()
    passed: int = 0
    merging: bool = True


NOTHING_GIVEN_UP = GivenUp()


@dataclass(frozen=True)
class ArenaAssignment:
    """Assigns the tensors of a function, whose buffers are numbered in the order of `candidates`.

    `profiles` are those of the functions that it calls; `called`: others call it.  Sample shapes keep within
    `bounds`, and every shape is in `domain`.  `whole`: as few arenas as can be are wanted, whatever a call
    takes then; `apart`: what has a constant size lies in arenas of its own; `lending`: tensors may lie in the
    memory of results.
    """

    candidates: Sequence[Candidate]
    paths: Sequence[PathLifetimes]
    nesting: BlockNesting
    bounds: ExtentBounds
    profiles: Mapping[str, CallProfile]
    domain: Domain
    called: bool = False
    whole: bool = False
    apart: bool = False
    lending: bool = True
    _attempts: dict[tuple[CallColumns, tuple[int, ...]], ArenaAttempts] = field(default_factory=dict)
    _bounds: dict[CallColumns, CoefficientBound] = field(default_factory=dict)

    @cached_property
    def places(self) -> Sequence[tuple[Sequence[Candidate], CallColumns]]:
        """The candidates on each device and memory scope, and the moments of a call."""
        places: dict[tuple[int, str], list[Candidate]] = {}
        for candidate in self.candidates:
            places.setdefault(candidate.memory.place, []).append(candidate)
        return [(members, self.columns(members)) for members in places.values()]

    def assigned(self, given_up: GivenUp) -> Assigned:
        """Return the arenas."""
        groups: list[list[Candidate]] = []
        spread = 1.0
        more: list[Mapping[str, int]] = []
        for members, columns in self.places:
            numbers, its_spread = self.judged(members, columns, given_up, more)
            spread = max(spread, its_spread)
            groups += sorted(([members[i] for i in group] for group in numbers), key=self.reserved_at)
        profile = self.profile(groups, more) if self.called else None
        found: list[Buffer] = []
        lone: list[Memory] = []
        for number, group in enumerate(groups):
            if len(group) == 1 and group[0].memory.returned:
                lone.append(group[0].memory)
            else:
                lendable = self.whole or profile is None or number in profile.lent
                found += _arena(sorted(group, key=lambda m: m.number), len(found), lendable=lendable)
        return Assigned(found, lone, profile, spread)

    def judged(
        self,
        members: Sequence[Candidate],
        columns: CallColumns,
        given_up: GivenUp,
        more: list[Mapping[str, int]],
    ) -> tuple[Groups, float]:
        """Return the chosen arenas, and how many times their floor they take together at worst.

        They are judged at sample bindings.  Others at which they exceed the limit are looked for; where there
        are some, they are added to `more`, and the choice is made again, in the way that was chosen before
        where that does.  Many tensors lie each by itself where the last choice exceeds it, too.
        """
        results = [i for i, m in enumerate(members) if m.memory.returned]
        planned = [i for i, m in enumerate(members) if not m.memory.returned]
        lone = [[i] for i in results]
        if self.whole and not columns.alike:
            timeline = self.timeline(columns)
            simple = [*lone, *fewest_arenas(timeline, planned)]
            return simple, self.search.spread(timeline, simple)
        simple = [*lone, *by_definition(columns, planned)]
        if self.whole or len(simple) == len(members):  # each by itself, which is what the limit is
            return simple, 1.0
        bound = self.bound(columns)
        if len(simple) <= len(results) + 1 and not given_up.passed and bound.keeps(simple):
            return simple, 1.0
        hosts = [i for i in results if self.lending and members[i].memory.var not in given_up.barred]
        many = len(members) > MANY
        made_by: Attempt | None = None
        for left in reversed(range(CHOICES_OF_MANY if many else MOST_CHOICES)):
            attempts = self.attempts(columns, planned, results, hosts, more)
            choice = attempts.again(made_by) or attempts.chosen(given_up.passed)
            timeline, numbers, made_by = attempts.timeline, choice.groups, choice.made_by
            if given_up.merging:
                numbers = merged_arenas(choice.made_on or timeline, numbers)
            found = self.search.worst(timeline, numbers, bound, thorough=not left)
            if not found.shapes or not left:
                break
            more += found.shapes
        if many and found.over > TOLERABLE_AT_LAST:
            return [*lone, *([i] for i in planned)], 1.0
        said = found.spread > 1 + EXACT or all(members[i].memory.grounded for i in planned)
        return numbers, max(found.spread, self.search.spread(timeline, numbers)) if said else found.spread

    @cached_property
    def search(self) -> ShapeSearch:
        """The search for shapes at which an assignment is no good."""
        return ShapeSearch(bounds=self.bounds, profiles=self.profiles)

    def profile(
        self, groups: Sequence[Sequence[Candidate]], more: Sequence[Mapping[str, int]]
    ) -> CallProfile:
        """Return what a call takes; its caller brings the arenas that it may hold for all of the call.

        That is judged at `more` bindings besides the samples.
        """
        numbers = [[m.number for m in group] for group in groups]
        alone = len(self.places) == 1
        columns = self.places[0][1] if alone else self.columns(self.candidates)
        tenants = columns.tenants
        entry = [
            number
            for number, group in enumerate(numbers)
            if all(tenants[i].known < 0 and not tenants[i].kept for i in group)
        ]
        lent: frozenset[int] = frozenset(entry)
        bound = self.bound(columns)
        if self.whole or bound.keeps(numbers, lent):
            return CallProfile(columns, self.profiles, numbers, lent)
        for left in reversed(range(MOST_CHOICES)):
            timeline = self.timeline(columns, more)
            lent = frozenset(_lendable(timeline, numbers, entry))
            found = self.search.worst(timeline, numbers, bound, lent) if left and lent else None
            if found is None or not found.shapes:
                break
            more = [*more, *found.shapes]
        return CallProfile(columns, self.profiles, numbers, lent)

    def columns(self, candidates: Sequence[Candidate]) -> CallColumns:
        """Return the moments of a call at which `candidates` are there."""
        tenants = [c.tenant(self.domain, apart=self.apart) for c in candidates]
        return CallColumns(tenants, self.paths, self.nesting, self.profiles)

    def attempts(
        self,
        columns: CallColumns,
        planned: Sequence[int],
        results: Sequence[int],
        hosts: Sequence[int],
        more: Sequence[Mapping[str, int]],
    ) -> ArenaAttempts:
        """Return the assignments to try, judged at sample bindings and at `more`; without those they are made
        once, however many are given up.
        """
        key = columns, tuple(hosts)
        if more or key not in self._attempts:
            timeline = self.hosting(columns, more) if hosts else self.timeline(columns, more)
            found = ArenaAttempts(timeline, planned, results, hosts, self.coefficients(columns))
            if more:
                return found
            self._attempts[key] = found
        return self._attempts[key]

    def coefficients(self, columns: CallColumns) -> CallTimeline | None:
        """Return what is seen of calls everywhere where that is better than to look at samples: for few
        tensors whose sizes have many symbols.
        """
        symbols = frozenset().union(*(t.size.symbols for t in columns.tenants))
        if len(symbols) < MANY_SYMBOLS or len(columns.tenants) > FEW_TENSORS:
            return None
        return self.bound(columns).everywhere

    def bound(self, columns: CallColumns) -> CoefficientBound:
        """Return what is seen of calls by coefficients, made once, however many assignments are given up."""
        found = self._bounds.get(columns)
        if found is None:
            found = self._bounds[columns] = CoefficientBound(columns, self.domain)
        return found

    def timeline(self, columns: CallColumns, more: Sequence[Mapping[str, int]] = ()) -> CallTimeline:
        """Return what is taken at sample bindings and at `more`."""
        return CallTimeline(columns, self.table(columns, more), self.profiles)

    def hosting(self, columns: CallColumns, more: Sequence[Mapping[str, int]]) -> CallTimeline:
        """Return the same, with shapes below the declared bounds behind them at which tensors have to fit
        into the memory of results: layouts are made for those shapes, too.
        """
        table = self.table(columns, more)
        lows = [self.bounds.lower.get(name, 0) for name in table.grid.names]
        if not any(lows):
            return CallTimeline(columns, table, self.profiles)
        points = sample_grid(self.domain, table.grid.names).points
        below = dict.fromkeys(p[: len(lows)] for p in points if any(map(lt, p, lows)))
        timeline = CallTimeline(columns, table.also_at(below), self.profiles)
        return timeline.judged_at(len(table.grid))

    def table(self, columns: CallColumns, more: Sequence[Mapping[str, int]]) -> SizeTable:
        """Return all sizes at sample bindings and at `more`."""
        sizes = sizes_of(columns, self.profiles)
        return sample_table(sizes, self.bounds, more, dense=not columns.alike)

    def reserved_at(self, group: Sequence[Candidate]) -> tuple[int, int]:
        """Return where the arena of a group is reserved, in the order of the text."""
        return self.nesting.reservation(m.memory.made for m in group).point, group[0].number


def _lendable(timeline: CallTimeline, groups: Groups, entry: Sequence[int]) -> Sequence[int]:
    """Those of the groups `entry`, by index, whose arenas may be held for all of a call; many first."""
    if timeline.excess(groups, entry) <= EXACT:
        return entry
    found: list[int] = []
    for number in entry[:MOST_LENT]:
        if timeline.excess(groups, [*found, number]) <= EXACT:
            found.append(number)
    return found


def _arena(members: Sequence[Candidate], number: int, *, lendable: bool) -> list[Buffer]:
    waits = [d for m in members if (d := m.memory.definition) is not None]
    last = max(waits, key=lambda definition: definition.step).var if waits else None
    return [m.placed(number + place, number, last, lendable=lendable) for place, m in enumerate(members)]
