"""Stackings: who lies on whom in an arena, and the search for one whose height stays nearest to the floor.

A stacking is an order of the buffers, bottom first, that says which of two interfering ones lies below.  One
taken from a packing at one binding is right for every binding: the offsets that follow keep each pair apart
whatever the sizes.  Only its height varies; it is judged by the worst ratio to the floor over a grid of
bindings, then by the mean.  The search stops as soon as the worst is 1.

It tries a greedy packing at a typical binding, then a local search from it (ruin and recreate: Schrimpf et
al., Record Breaking Optimization Results Using the Ruin and Recreate Principle, 2000), then a packing at the
worst binding.  Greedy with best fit is as Pisarchyk and Lee have it, Efficient Memory Management for Deep
Neural Net Inference (2020).  Buffers go by their index.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from math import isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np

from symalloc.native.native_functions import lists_of, packer_functions
from symalloc.planner.grid import TYPICAL, Grid, Ranges, Values, score_grid
from symalloc.planner.interference import Changes, changes_of, interference, most_at_once, pairs_live_together
from symalloc.planner.memory_plan import Buffer, EffortName, PlanBudget
from symalloc.prover.domain import INT64_MAX
from symalloc.size.expr import Expr

if TYPE_CHECKING:
    from symalloc.native.native_functions import GraphObject


PERFECT = 1.0 + 1e-9
ROUNDS = 9  # of local search, each with the point added where the last one left the ratio worst
WORK_EACH = 4_000  # of local search at most, for each buffer
LOOKS_EACH = 50  # that packing and judging count for each buffer, besides its neighbours
LARGEST = 1 << 60  # bytes that all sizes together may have in the native library


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBudget:
    """The budget of one search.  All of it is counted: the same seed gives the same answer under any load.

    Buffers are packed where no more than `packing` pairs of them are live together.  `work` bounds the local
    search, in steps times points times what is live together.
    For problems of fixed sizes `exact` bounds the exact method, `capacity` where a packing within a capacity
    is looked for, both in steps times neighbours of a buffer.
    """

    seed: int = 0
    packing: int = 2_000_000
    work: int = 400_000
    exact: int = 500_000
    capacity: int = 10_000_000

    @classmethod
    def of(cls, effort: EffortName, *, seed: int = 0) -> SearchBudget:
        """Return the budget that an effort stands for."""
        return replace(_BUDGETS[effort], seed=seed)


_BUDGETS: Mapping[EffortName, SearchBudget] = {
    "quick": SearchBudget(),
    "normal": SearchBudget(
        packing=4_000_000,
        work=4_000_000,
        exact=6_000_000,
        capacity=150_000_000,
    ),
    "thorough": SearchBudget(
        packing=60_000_000,
        work=100_000_000,
        exact=150_000_000,
        capacity=1_500_000_000,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacking:
    """`order` lists the buffers bottom first; `below[i]` holds those that i lies on directly: the others that
    interfere with i and come before it are below one of them.
    """

    order: tuple[int, ...]
    below: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, order: Sequence[int], buffers: Sequence[Buffer]) -> Stacking:
        """Return the stacking in which of two that are live together the one that comes first in `order` lies
        below.
        """
        graph = _graph((), changes_of([b.live for b in buffers]))
        return _piled(graph, order, [0] * len(order), np.empty((1, 0)))[0]


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """Height over floor, 1 at best; the lesser is the better."""

    worst: float
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredStacking:
    """A stacking with its height over the floor at each point of the grid."""

    stacking: Stacking
    ratios: Values = field(compare=False)
    score: Score


def search(
    buffers: Sequence[Buffer],
    ranges: Ranges,
    budget: SearchBudget,
    whole: PlanBudget | None = None,
    shapes: Sequence[Mapping[str, int]] = (),
) -> ScoredStacking:
    """Return the best stacking found for `buffers`.

    `ranges` gives declared bounds of symbols: none is relied on, they only say which bindings are likely.
    It is judged at `shapes`, too.
    Layers are stacked alike, but where one by one they come nearer to the floor.  What is done is counted in
    `whole`, too; once that is exhausted the search ends with what it has.
    """
    whole = PlanBudget() if whole is None else whole
    if buffers and most_at_once(changes_of([b.live for b in buffers])) in (0, 1, len(buffers)):
        stacking = Stacking.of(range(len(buffers)), buffers)  # as high as their sum, or as the largest
        return ScoredStacking(stacking=stacking, ratios=np.ones(1), score=Score(1.0, 1.0))

    def stacked(some: Sequence[Buffer]) -> ScoredStacking:
        problem = StackingProblem.of(some, ranges, most_pairs=budget.packing, shapes=shapes)
        point = problem.grid.nearest(typical_binding(problem.grid.names, ranges))
        return _StackingSearch(problem=problem, budget=budget, whole=whole, point=point).found()

    classes = folded(buffers)
    if classes is None:
        return stacked(buffers)
    alike = stacked(folds_of(buffers, classes))
    if alike.score.worst > PERFECT and not whole.exhausted:
        single = stacked(buffers)
        if single.score < alike.score:
            return single
    return replace(alike, stacking=Stacking.of(unfolded(alike.stacking.order, classes), buffers))


# -- the problem in numbers --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StackingProblem:
    """`buffers` with the numbers that the search works on.

    `pairs` counts those that are live together, too many to be looked at where it is `crowded`.  `sizes`
    holds the distinct sizes and `kinds` which of them each buffer has; `values[k, g]` is the k-th size at
    point g of the grid, `floors[g]` the floor there (at least 1 byte).  `graph` holds for the native library
    live ranges, and which buffers interfere.
    """

    buffers: Sequence[Buffer]
    pairs: int
    crowded: bool
    begins: tuple[int, ...]
    durations: tuple[int, ...]
    sizes: tuple[Expr, ...]
    kinds: tuple[int, ...]
    grid: Grid
    values: Values
    floors: Values
    graph: GraphObject = field(repr=False)

    @classmethod
    def of(
        cls,
        buffers: Sequence[Buffer],
        ranges: Ranges,
        *,
        most_pairs: int,
        shapes: Sequence[Mapping[str, int]] = (),
    ) -> StackingProblem:
        """Return the problem of `buffers`, on a grid that `ranges` steers, with `shapes` in it.

        It is crowded where more than `most_pairs` are live together: they are not looked at.
        """
        distinct: dict[Expr, int] = {}
        kinds = tuple(distinct.setdefault(b.size, len(distinct)) for b in buffers)
        sizes = tuple(distinct)
        grid = score_grid(sizes, ranges, shapes)
        values = np.nan_to_num(grid.values(sizes))
        lives = [b.live for b in buffers]
        pairs = pairs_live_together(lives)
        return cls(
            buffers=buffers,
            pairs=pairs,
            crowded=pairs > most_pairs,
            begins=tuple(live[0][0] if live else 0 for live in lives),
            durations=tuple(sum(end - begin for begin, end in live) for live in lives),
            sizes=sizes,
            kinds=kinds,
            grid=grid,
            values=values,
            floors=_floors(buffers, values, kinds),
            graph=_graph(() if pairs > most_pairs else interference(buffers), changes_of(lives)),
        )

    def __len__(self) -> int:
        return len(self.buffers)

    def relative(self, point: int) -> list[float]:
        """Return the size of each buffer at a point of the grid, in multiples of the floor there."""
        values: list[float] = (self.values[:, point] / self.floors[point]).tolist()
        return [values[kind] for kind in self.kinds]

    def sizes_at(self, point: int) -> list[int]:
        """Return the size of each buffer at a point of the grid: bytes, or larger units where the native
        library could not add them up.
        """
        binding = self.grid.binding(point)
        values = [size.evaluate(binding) for size in self.sizes]
        found = [values[kind] for kind in self.kinds]
        unit = sum(found) // LARGEST + 1
        return [-(-size // unit) for size in found] if unit > 1 else found


def _floors(buffers: Sequence[Buffer], values: Values, kinds: Sequence[int]) -> Values:
    """Return the most bytes that are live at one position, at each point; `values` has a row a kind."""
    now, floors = np.zeros(values.shape[1]), np.ones(values.shape[1])
    for begins, ends in changes_of([b.live for b in buffers]):
        for i in ends:
            now = now - values[kinds[i]]
        for i in begins:
            now = now + values[kinds[i]]
        if begins:
            floors = np.maximum(floors, now)
    return floors


def _graph(neighbours: Sequence[Sequence[int]], changes: Changes) -> GraphObject:
    begins, ends = ([change[side] for change in changes] for side in (0, 1))
    return packer_functions.graph(lists_of(neighbours), lists_of(begins), lists_of(ends))


def typical_binding(names: Iterable[str], ranges: Ranges) -> dict[str, int]:
    """Return a typical extent for each symbol, within its declared bounds."""
    bounds = {name: ranges.get(name, (0, None)) for name in names}
    return {
        name: max(low, TYPICAL if high is None else min(TYPICAL, high))
        for name, (low, high) in bounds.items()
    }


# -- packings and stackings in the native library ----------------------------------------------------------


def judged(problem: StackingProblem, order: Sequence[int]) -> ScoredStacking:
    """Return the stacking of `order`, judged over the grid."""
    stacking, heights = _piled(problem.graph, order, problem.kinds, problem.values)
    ratios = np.maximum(heights / problem.floors, 1.0)
    # so that noise in the last digits decides nothing
    score = Score(round(float(ratios.max()), 9), round(float(ratios.mean()), 9))
    return ScoredStacking(stacking=stacking, ratios=ratios, score=score)


def _piled(
    graph: GraphObject, order: Sequence[int], kinds: Sequence[int], values: Values
) -> tuple[Stacking, Values]:
    """Return the stacking of `order`, and its height at each point of which `values` has a column."""
    counts, items, heights = packer_functions.pile(
        graph, array("i", order).tobytes(), array("i", kinds).tobytes(), values.tobytes(), values.shape[1]
    )
    numbers = iter(memoryview(items).cast("i").tolist())
    below = tuple(tuple(islice(numbers, count)) for count in memoryview(counts).cast("i"))
    return Stacking(order=tuple(order), below=below), np.frombuffer(heights)


def packed_order(problem: StackingProblem, sizes: Sequence[int]) -> list[int]:
    """Return all buffers, bottom first, as best fit packs them where they have these sizes: first those whose
    size times the root of how long they live is the most, of equal ones those that begin to live first.
    """
    weights = [size * sqrt(lived) for size, lived in zip(sizes, problem.durations, strict=True)]
    order = sorted(range(len(problem)), key=lambda i: (-weights[i], problem.begins[i], i))
    offsets = array("q")
    offsets.frombytes(
        packer_functions.place(problem.graph, array("i", order).tobytes(), array("q", sizes).tobytes(), True)
    )
    return _by_offset(offsets, sizes)


def _by_offset(offsets: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Return all indices, bottom first: the stacking of a packing, as an order."""
    return sorted(range(len(offsets)), key=lambda i: (offsets[i], offsets[i] + sizes[i], i))


def improved(
    problem: StackingProblem,
    order: Sequence[int],
    points: Sequence[int],
    *,
    target: float,
    steps: int,
    seed: int,
    budget: PlanBudget,
) -> Sequence[int]:
    """Return a stacking at least as good as `order` at these points of the grid.

    Stops when the worst ratio at the points is at most `target`, after `steps`, and once `budget` is
    exhausted; does nothing where sizes are beyond floats.  `seed` has at most 63 bits.
    """
    columns = [problem.relative(point) for point in points]
    if not all(isfinite(sum(column)) for column in columns):
        return order
    answer = array("q")
    answer.frombytes(
        packer_functions.improve(
            problem.graph,
            array("i", order).tobytes(),
            b"".join(array("d", column).tobytes() for column in columns),
            target,
            steps,
            seed,
            2 * problem.pairs + LOOKS_EACH * len(problem) // 5,  # to stack all of them at one point
            float(budget.allowed - budget.spent),
        )
    )
    _, spent, *better = answer
    budget.spend(spent)
    return better


# -- the search --------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _StackingSearch:
    """The `best` stacking so far of a search that begins at one `point` of the grid."""

    problem: StackingProblem
    budget: SearchBudget
    whole: PlanBudget
    point: int
    best: ScoredStacking | None = None

    def found(self) -> ScoredStacking:
        """Return the best stacking found; the first that is perfect ends the search."""
        if self.problem.crowded:
            any(map(self.add, crowded_orders(self.problem, self.point)))
        elif not self.pack(self.point) and not self.improve() and self.best and not self.whole.exhausted:
            self.pack(int(self.best.ratios.argmax()))
        assert self.best is not None
        return self.best

    def add(self, order: Sequence[int]) -> bool:
        """Judge a stacking over the whole grid; return whether the search is over."""
        self.whole.spend(LOOKS_EACH * len(self.problem))
        found = judged(self.problem, order)
        if self.best is None or found.score < self.best.score:
            self.best = found
        return self.best.score.worst <= PERFECT

    def pack(self, point: int) -> bool:
        """Judge a greedy packing at a point of the grid; return whether the search is over."""
        self.whole.spend(self.problem.pairs + LOOKS_EACH * len(self.problem))
        return self.add(packed_order(self.problem, self.problem.sizes_at(point)))

    def improve(self) -> bool:
        """Search from the best stacking at the point, and where it is worst; return whether that ends it."""
        each = len(self.problem) + self.problem.pairs
        work = min(self.budget.work, WORK_EACH * len(self.problem))
        chosen = [self.point]
        for number in range(ROUNDS if work else 0):
            assert self.best is not None
            if self.whole.exhausted:
                return False
            chosen = list(dict.fromkeys((*chosen, int(self.best.ratios.argmax()))))
            order = improved(
                self.problem,
                self.best.stacking.order,
                chosen,
                target=PERFECT,
                steps=work // (each * len(chosen) * ROUNDS) + 1,
                seed=(self.budget.seed + number) & INT64_MAX,
                budget=self.whole,
            )
            if self.add(order):
                return True
        return False


# -- where so much is live at once that pairs cannot be looked at --------------------------------------------


def crowded_orders(problem: StackingProblem, point: int) -> Iterator[list[int]]:
    """Yield two orders of the buffers of `problem`, bottom first: as an allocator gives memory out by best
    fit, forwards and backwards in time, where they have their sizes at `point`.

    Any order makes a right stacking, so pairs are left to the library, which looks at them one by one.
    """
    lives = lists_of([[*chain.from_iterable(b.live)] for b in problem.buffers])
    alignments = array("q", [1] * len(problem)).tobytes()
    sizes = problem.sizes_at(point)
    for begins in (problem.begins, [-b.live[-1][1] if b.live else 0 for b in problem.buffers]):
        order = sorted(range(len(problem)), key=lambda i: (begins[i], -sizes[i], i))
        memory = packer_functions.first_fit(array("q", sizes).tobytes(), alignments, lives)
        answer = packer_functions.put(memory, array("i", order).tobytes(), True)
        offsets = dict(zip(order, array("q", answer)[1:], strict=True))
        yield _by_offset([offsets[i] for i in range(len(problem))], sizes)


AROUND = 32  # buffers before it and behind it that tell a buffer's place in its layer


def folded(buffers: Sequence[Buffer]) -> list[list[int]] | None:
    """Return the buffers, by index, that are to share an offset, those of each list never live together.

    None where that leaves more than half as many.
    """
    order = sorted(range(len(buffers)), key=lambda i: (buffers[i].live[:1], i))
    marks = _marks([buffers[i] for i in order])
    alike: dict[object, list[list[int]]] = {}
    for place, i in enumerate(order):
        before, behind = marks[max(place - AROUND, 0) : place], marks[place : place + AROUND + 1]
        _append(alike.setdefault((tuple(before), tuple(behind)), []), i, buffers)
    found = list(chain.from_iterable(alike.values()))
    return sorted(found) if 0 < 2 * len(found) <= len(buffers) else None


def folds_of(buffers: Sequence[Buffer], classes: Sequence[Sequence[int]]) -> list[Buffer]:
    """Return one buffer for each of `classes`, live whenever one of the class is; time is cut short to one
    position for each different set of classes that are live together.
    """
    lives = [tuple(chain.from_iterable(buffers[i].live for i in members)) for members in classes]
    found: list[list[tuple[int, int]]] = [[] for _ in classes]
    begun: dict[int, int] = {}
    changed: set[int] = set()  # since the last position
    known: set[int] = set()  # sets of classes, with one bit for each
    together = 0
    for begins, ends in changes_of(lives):
        for number in (*ends, *begins):
            together ^= 1 << number
            changed ^= {number}
        if begins and together not in known:
            for number in changed:
                if number in begun:
                    found[number].append((begun.pop(number), len(known)))
                else:
                    begun[number] = len(known)
            known.add(together)
            changed.clear()
    for number, begin in begun.items():
        found[number].append((begin, len(known)))
    return [
        replace(buffers[members[0]], live=tuple(live)) for members, live in zip(classes, found, strict=True)
    ]


def unfolded(order: Sequence[int], classes: Sequence[Sequence[int]]) -> list[int]:
    """Return the order of all buffers where `order` is that of their classes."""
    return [i for number in order for i in classes[number]]


def _append(chains: list[list[int]], i: int, buffers: Sequence[Buffer]) -> None:
    """Append a buffer to the first of `chains` whose last one ends before it begins, else start another."""
    live = buffers[i].live
    for one in chains:
        if live and buffers[one[-1]].live[-1][1] <= live[0][0]:
            one.append(i)
            return
    chains.append([i])


def _marks(buffers: Sequence[Buffer]) -> list[int]:
    """A number for each buffer: the same for those of one size that live equally long."""
    known: dict[object, int] = {}
    found = []
    for b in buffers:
        shape = tuple((begin - b.live[0][0], end - b.live[0][0]) for begin, end in b.live)
        found.append(known.setdefault((b.size, b.alignment, shape), len(known)))
    return found
