"""Search for the stacking, or the few with conditions between them, whose height stays nearest to the floor.

Every stacking is right for every binding; here only its height is judged: by the worst ratio to the floor
over a grid of bindings, then by the mean.  The search stops as soon as the worst is 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from operator import add

from symalloc.planner.exact.solve import pack_exactly, steps_within
from symalloc.planner.interference import changes_of, most_at_once
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.plan_budget import PlanBudget
from symalloc.planner.planner_options import EffortName
from symalloc.planner.search.certain_order import certain_order
from symalloc.planner.search.crowded import crowded_orders
from symalloc.planner.search.greedy import HEURISTICS, by_offset, place
from symalloc.planner.search.grid import Ranges, Values
from symalloc.planner.search.local_search import improve, tops
from symalloc.planner.search.loose_points import Regimes, loose_points
from symalloc.planner.search.regimes import Split, split
from symalloc.planner.search.repetition import folded, folds_of, unfolded
from symalloc.planner.search.search_instance import SearchInstance, representatives, typical_binding
from symalloc.planner.search.split_mix import SplitMix64
from symalloc.planner.search.stacking import Score, Stacking, judged
from symalloc.size.expr import constant

PERFECT = 1.0 + 1e-9
HARD_POINTS = 2  # at which the local search starts to work; the whole grid judges what it finds
ROUNDS = 9  # of local search, each with the point added where the last one left the ratio worst
FEW_STEPS = 16  # in the first round, twice as many in each that follows
CROWDED_POINTS = 3  # at which so many are packed that pairs cannot be looked at
PAIRS_EACH = 50  # that packing and judging it over the grid count, for each buffer
JUDGED_EACH = 15  # that judging counts
EXACT_STEPS = 20  # of the exact method, times neighbours, that count as one look
GRIDS = 3  # that are tried, each with the points at which the stackings of the one before were loose
KEPT = 16  # candidates that local search learns from and regimes are chosen from
JUDGED = 4  # of those known to be imperfect, before local search
WITNESSES = 3  # points at which one is looked at before the whole grid
EARLY = 2  # heuristics before the first local search
EARLY_ROUNDS = 3  # of it
FEW_BUFFERS = 4  # of which every order is tried
WORK_EACH = 4_000  # of local search at most, for each buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBudget:
    """The budget of one search.  All of it is counted: the same seed gives the same answer under any load.

    `points` bindings are packed at with `heuristics` each, as long as `packing` lasts, in pairs of buffers
    that were looked at.  `work` bounds the local search, in steps times points times what is live together;
    up to `regimes` stackings are kept where one leaves the worst ratio above `target`.  `exact` bounds the
    exact method where all sizes grow alike, `capacity` where a packing within a capacity is looked for, both
    in steps times neighbours of a buffer.
    """

    seed: int = 0
    points: int = 8
    heuristics: int = 4
    packing: int = 1_000_000
    work: int = 400_000
    regimes: int = 3
    target: float = 1.01
    exact: int = 500_000
    capacity: int = 10_000_000

    @classmethod
    def of(cls, effort: EffortName, *, seed: int = 0) -> SearchBudget:
        """Return the budget that an effort stands for."""
        return replace(_BUDGETS[effort], seed=seed)


_BUDGETS: Mapping[EffortName, SearchBudget] = {
    "quick": SearchBudget(),
    "normal": SearchBudget(
        points=16,
        heuristics=len(HEURISTICS),
        packing=4_000_000,
        work=4_000_000,
        exact=6_000_000,
        capacity=150_000_000,
    ),
    "thorough": SearchBudget(
        points=48,
        heuristics=len(HEURISTICS),
        packing=60_000_000,
        work=100_000_000,
        target=1.0,
        exact=150_000_000,
        capacity=1_500_000_000,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The stackings found.

    `regimes` holds each with the condition under which it is taken where none before it is; the last has None
    and is taken otherwise.  `score` holds over the grid, and so does `excess`, the most bytes above the
    floor; `worst` is the worst ratio to the floor wherever that was looked at.  `representative` is a binding
    at which the search packed; `steps` counts what was tried.  `certain`: the floor is kept at every binding.
    """

    regimes: Regimes
    score: Score
    worst: float
    excess: float
    representative: Mapping[str, int]
    steps: int
    certain: bool = False


def search(
    buffers: Sequence[Buffer], ranges: Ranges, budget: SearchBudget, whole: PlanBudget | None = None
) -> SearchResult:
    """Return the best stackings found for `buffers`.

    `ranges` gives declared bounds of symbols: none is relied on, they only say which bindings are likely.
    Layers are stacked alike, but where one by one they come nearer to the floor.  What is done is counted in
    `whole`, too; once that is exhausted the search ends with what it has.
    """
    whole = PlanBudget() if whole is None else whole
    changes = changes_of([b.live for b in buffers])
    most = most_at_once(changes)
    if buffers and most in (0, 1, len(buffers)):  # the floor is their sum, or the largest
        return _at_floor(Stacking.at(range(len(buffers)), changes), buffers, ranges)
    certain = certain_order(buffers, most)
    if certain is not None:
        return _at_floor(Stacking.at(certain, changes), buffers, ranges)
    classes = folded(buffers)
    if classes is None:
        return _stacked(buffers, ranges, budget, whole)
    alike = _stacked(folds_of(buffers, classes), ranges, replace(budget, exact=0), whole)
    if alike.score.worst > PERFECT and not whole.exhausted:
        single = _stacked(buffers, ranges, budget, whole)
        if single.score < alike.score:
            return single
    return _spread(alike, classes, buffers)


def _stacked(
    buffers: Sequence[Buffer], ranges: Ranges, budget: SearchBudget, whole: PlanBudget
) -> SearchResult:
    """Return the best stackings found.

    Points besides the grid are searched for those at which they are worse.  Where they are at the floor all
    over the grid alone, stackings are looked for anew with these points.
    """
    problem = SearchInstance.of(buffers, ranges)
    best: SearchResult | None = None
    for _ in range(GRIDS):
        run = _StackingSearch(problem=problem, budget=budget, whole=whole)
        points = representatives(problem, ranges, budget.points)
        run.fill(points)
        found = run.result(points[0])
        loose = loose_points(problem, found.regimes, ranges)
        found = replace(found, worst=max(found.score.worst, loose.worst))
        best = found if best is None or found.worst < best.worst else best
        if found.score.worst > PERFECT or not loose.points or whole.exhausted:
            break
        problem = problem.at((*problem.grid.points, *loose.points))
    assert best is not None
    return best


def _spread(found: SearchResult, classes: Sequence[Sequence[int]], buffers: Sequence[Buffer]) -> SearchResult:
    """Return the stackings of all `buffers` for those found of their `classes`; they are as high at most."""
    regimes = ((when, unfolded(stacking.order, classes)) for when, stacking in found.regimes)
    return replace(found, regimes=tuple((when, Stacking.of(order, buffers)) for when, order in regimes))


def _at_floor(stacking: Stacking, buffers: Sequence[Buffer], ranges: Ranges) -> SearchResult:
    """Return a stacking that is at the floor whatever the sizes."""
    names = sorted(frozenset().union(*(b.size.symbols for b in buffers)))
    return SearchResult(
        regimes=((None, stacking),),
        score=Score(1.0, 1.0),
        worst=1.0,
        excess=0.0,
        representative=typical_binding(names, ranges),
        steps=1,
        certain=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoredStacking:
    stacking: Stacking
    values: Values
    score: Score


@dataclass(slots=True, kw_only=True)
class _StackingSearch:
    """The candidates so far, best first; `waiting` are orders that are not perfect at some point, with the
    ratio there and their number, which only matter where none is.
    """

    problem: SearchInstance
    budget: SearchBudget
    whole: PlanBudget
    candidates: list[_ScoredStacking] = field(default_factory=list)
    waiting: list[tuple[float, int, list[int]]] = field(default_factory=list)
    witnesses: dict[int, list[float]] = field(default_factory=dict)
    seen: set[tuple[int, ...]] = field(default_factory=set)
    steps: int = 0
    looked_at: int = 0
    random: SplitMix64 = field(init=False)

    def __post_init__(self) -> None:
        self.random = SplitMix64(self.budget.seed)

    def fill(self, points: Sequence[int]) -> None:
        """Fill `candidates`; stop at the first that is perfect."""
        if self.problem.crowded:
            any(self.add(order) for order in crowded_orders(self.problem, points[:CROWDED_POINTS]))
            return
        heuristics = HEURISTICS[: self.budget.heuristics]
        if self.packed(heuristics[:EARLY], points):
            return
        if len(self.problem) <= FEW_BUFFERS:
            any(self.add(order) for order in permutations(range(len(self.problem))))
            return
        if self.improve(self.hard(points), EARLY_ROUNDS):
            return
        if self.packed(heuristics[EARLY:], points):
            return
        hard = self.hard(points)
        if len(hard) == 1 and self.budget.exact and not self.whole.exhausted and self.exact(hard[0]):
            return
        self.improve(hard, ROUNDS)

    def packed(self, heuristics: Iterable[tuple[str, bool]], points: Sequence[int]) -> bool:
        """Enter what heuristics make; return whether the search is over."""
        for name, best_fit in heuristics:
            if any(self.add(order) for order in self.greedy(name, best_fit, points)):
                return True
        self.judge(JUDGED)
        return False

    def add(self, order: Sequence[int]) -> bool:
        """Enter a candidate, judged over the whole grid; return whether the search is over."""
        self.whole.spend(JUDGED_EACH * len(self.problem))
        stacking, values = judged(self.problem, order)
        self.candidates.append(_ScoredStacking(stacking=stacking, values=values, score=Score.of(values)))
        self.candidates.sort(key=lambda c: c.score)
        del self.candidates[KEPT:]
        if len(self.witnesses) < WITNESSES and (point := int(values.argmax())) not in self.witnesses:
            self.witnesses[point] = self.problem.relative(point)
        return self.candidates[0].score.worst <= PERFECT

    def greedy(self, name: str, best_fit: bool, points: Sequence[int]) -> Iterator[list[int]]:
        """Yield the stacking that a heuristic makes at each point, but those that were made before; one that
        is not perfect there has to wait.
        """
        for point in points:
            if self.looked_at > self.budget.packing or (
                self.whole.exhausted and (self.candidates or self.waiting)
            ):
                return
            looks = self.problem.pairs + PAIRS_EACH * len(self.problem)
            self.looked_at += looks
            self.whole.spend(looks)
            sizes = self.problem.sizes_at(point)
            offsets = place(self.problem, sizes, name, best_fit=best_fit)
            order = by_offset(offsets, sizes)
            self.steps += 1
            if tuple(order) in self.seen:
                continue
            self.seen.add(tuple(order))
            own = max(map(add, offsets, sizes), default=0) / float(self.problem.floors[point])
            ratio = max((own, *(self.height(order, sizes) for sizes in self.witnesses.values())))
            if ratio <= PERFECT:
                yield order
            else:
                self.waiting.append((round(ratio, 9), len(self.seen), order))

    def height(self, order: Iterable[int], sizes: Sequence[float]) -> float:
        """Return the height of a stacking of buffers of these sizes."""
        return max(tops(order, sizes, self.problem.neighbours), default=0.0)

    def judge(self, most: int | None = None) -> None:
        """Make `most` of the orders that wait candidates, those that are nearest to the floor where they were
        made; or all.
        """
        self.waiting.sort()
        for _, _, order in self.waiting[:most]:
            if self.whole.exhausted and self.candidates:
                break
            self.add(order)
        del self.waiting[:most]

    def improve(self, points: Sequence[int], rounds: int) -> bool:
        """Search from the best candidate at `points`, and where it leaves others worst; return whether the
        search is over.
        """
        work = min(self.budget.work, WORK_EACH * len(self.problem))
        for number in range(rounds if work else 0):
            if self.whole.exhausted:
                return False
            each = max(len(self.problem), 1) + self.problem.pairs
            steps = work // (each * len(points) * ROUNDS) + 1
            if self.local(points, min(steps, FEW_STEPS << number)):
                return True
            points = self.different((*points, int(self.candidates[0].values.argmax())))
        return False

    def local(self, points: Sequence[int], steps: int) -> bool:
        """Search from the best candidate at `points`; return whether the search is over."""
        order, taken = improve(
            self.problem,
            self.candidates[0].stacking.order,
            points,
            target=PERFECT,
            steps=steps,
            seed=self.random.next() >> 1,
            budget=self.whole,
        )
        self.steps += taken
        return self.add(order)

    def exact(self, point: int) -> bool:
        """Pack exactly at `point`: where all points are alike but for the scale, it speaks for all.

        Return whether the search is over.
        """
        sizes = self.problem.sizes_at(point)
        fixed = [
            replace(buffer, size=constant(size), alignment=1)
            for buffer, size in zip(self.problem.buffers, sizes, strict=True)
        ]
        found = pack_exactly(
            fixed,
            self.problem.neighbours,
            capacity=None,
            seed=self.budget.seed,
            steps=steps_within(self.budget.exact, self.problem.neighbours),
        )
        self.steps += found.steps
        self.whole.spend(found.steps * (2 * self.problem.pairs // len(fixed) + 1) // EXACT_STEPS)
        if found.offsets is None:
            return False
        return self.add(by_offset(found.offsets, sizes)) or found.optimal

    def hard(self, points: Sequence[int]) -> list[int]:
        """Return the first of `points`, and where each of the candidates is worst; of points that are alike
        but for the scale only one.
        """
        worst = (int(c.values.argmax()) for c in self.candidates)
        return self.different((points[0], *worst))[:HARD_POINTS]

    def different(self, points: Sequence[int]) -> list[int]:
        """Return `points`, of those that are alike but for the scale only the first."""
        values, floors = self.problem.values, self.problem.floors
        seen: dict[bytes, int] = {}
        for point in points:
            seen.setdefault((values[:, point] / floors[point]).round(9).tobytes(), point)
        return list(seen.values())

    def result(self, point: int) -> SearchResult:
        """Return the best candidate, or several with conditions where one is not good enough."""
        chosen = Split(conditions=(), choices=(0,), values=self.candidates[0].values)
        if self.problem.grid.names and chosen.score.worst > self.budget.target:
            self.judge()
            values = [c.values for c in self.candidates]
            chosen = split(self.problem, values, self.budget.regimes, self.whole)
        stackings = [self.candidates[choice].stacking for choice in chosen.choices]
        return SearchResult(
            regimes=tuple(zip((*chosen.conditions, None), stackings, strict=True)),
            score=chosen.score,
            worst=chosen.score.worst,
            excess=float(((chosen.values - 1) * self.problem.floors).max()),
            representative=self.problem.grid.binding(point),
            steps=self.steps,
        )
