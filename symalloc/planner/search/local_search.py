"""Local search over stackings: take some buffers out, put each back where the arena stays lowest.

Ruin and recreate (Schrimpf et al., Record Breaking Optimization Results Using the Ruin and Recreate
Principle, 2000).  The height with a buffer put back follows from the longest paths below and above each of
its neighbours, as in Taillard's search for job shops (1994): all places are judged in one step.

It works at a few points of the grid, in plain lists: at so few, arrays cost more than they save.  Where the
native library is loaded, `native/packer/local_search.cc` does the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from typing import TypeAlias

from symalloc.planner.plan_budget import PlanBudget
from symalloc.planner.search.native_stacking import improve_natively
from symalloc.planner.search.search_instance import SearchInstance
from symalloc.planner.search.split_mix import SplitMix64

Heights: TypeAlias = list[float]  # one for each point, in multiples of the floor there

CLOSE = 1e-9  # heights nearer than this are alike
MOST_REMOVED = 7
WARMTH = 0.004  # how much worse than the current stacking a neighbour may be, in multiples of the floor
WEIGHT_OF_MEAN = 0.1
PASSED = 10  # what passing a buffer counts, in looks at neighbours


def improve(
    problem: SearchInstance,
    order: Sequence[int],
    points: Sequence[int],
    *,
    target: float,
    steps: int,
    seed: int,
    budget: PlanBudget,
) -> tuple[list[int], int]:
    """A stacking at least as good as `order` at these points of the grid, and the steps taken.

    Stops when the worst ratio at the points is at most `target`, after `steps`, and once `budget`
    is exhausted; does nothing where sizes are beyond floats.  `seed` has at most 63 bits.
    """
    columns = [problem.relative(point) for point in points]
    if not all(isfinite(sum(column)) for column in columns):
        return list(order), 0
    once = 2 * problem.pairs + PASSED * len(problem)  # to stack all of them at one point
    if problem.graph is not None:
        return improve_natively(
            problem.graph, order, columns, target=target, steps=steps, seed=seed, once=once, budget=budget
        )
    random = SplitMix64(seed)
    search = _RuinAndRecreate(neighbours=problem.neighbours, columns=columns, random=random, budget=budget)
    current = best = list(order)
    heights = lowest = search.heights(current)
    budget.spend(len(points) * once)
    for step in range(steps):
        if max(lowest) <= target or budget.exhausted:
            return best, step
        budget.spend((2 * len(points) + 2) * once)
        trial, reached = search.neighbour(current, heights)
        warmth = WARMTH * random.random() * (1 - step / steps)
        if _cost(reached) <= _cost(heights) + warmth:
            current, heights = trial, reached
        if _cost(reached) < _cost(lowest) - CLOSE:
            best, lowest = trial, reached
    return best, steps


def tops(order: Iterable[int], sizes: Sequence[float], neighbours: Sequence[Sequence[int]]) -> list[float]:
    """Return where each buffer ends when those of `order` are stacked; 0 for the others."""
    ends = [0.0] * len(sizes)
    for i in order:
        under = 0.0
        for j in neighbours[i]:
            if ends[j] > under:
                under = ends[j]
        ends[i] = under + sizes[i]
    return ends


def _cost(heights: Heights) -> float:
    """Return the quantity to minimise: the worst height, and a little of the mean."""
    total = 0.0
    for height in heights:  # sum() rounds otherwise from Python 3.12 on
        total += height
    return max(heights) + WEIGHT_OF_MEAN * total / len(heights)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RuinAndRecreate:
    """`columns` holds for each point the sizes of all buffers, in multiples of the floor there."""

    neighbours: Sequence[Sequence[int]]
    columns: Sequence[Sequence[float]]
    random: SplitMix64
    budget: PlanBudget

    def heights(self, order: Sequence[int]) -> Heights:
        return [max(tops(order, sizes, self.neighbours), default=0.0) for sizes in self.columns]

    def neighbour(self, order: Sequence[int], heights: Heights) -> tuple[list[int], Heights]:
        """Another stacking near `order`, which has these heights; and the heights that it has."""
        point = self.point(heights)
        sizes = self.columns[point]
        low, high = tops(order, sizes, self.neighbours), tops(reversed(order), sizes, self.neighbours)
        removed = self.ruin(sizes, low, high, heights[point])
        starts = [end - size for end, size in zip(low, sizes, strict=True)]
        # by offsets the stacking is the same, and where a buffer can be put back depends on how it is listed
        kept = [i for i in sorted(order, key=starts.__getitem__) if i not in removed]
        piles = [
            _Pile(
                sizes=column,
                low=tops(kept, column, self.neighbours),
                high=tops(reversed(kept), column, self.neighbours),
            )
            for column in self.columns
        ]
        for current in self.sequence(removed):
            heights = self.insert(kept, current, piles)
        return kept, heights

    def point(self, heights: Heights) -> int:
        """A point, the likelier the higher the stacking is there."""
        weights = [max(height - 1.0, 0.0) + 1e-6 for height in heights]
        return self.random.weighted(weights)

    def ruin(
        self, sizes: Sequence[float], low: Sequence[float], high: Sequence[float], height: float
    ) -> set[int]:
        """A buffer on a longest path, and some that it meets."""
        least = height - CLOSE * height
        critical = [i for i, size in enumerate(sizes) if low[i] + high[i] - size >= least]
        first = self.random.choice(critical)
        around = self.neighbours[first]
        count = min(self.random.below(MOST_REMOVED + 1), len(around))
        return {first, *self.random.sample(around, count)}

    def sequence(self, removed: set[int]) -> list[int]:
        """Large ones first, with some noise."""
        sizes = self.random.choice(self.columns)
        return sorted(sorted(removed), key=lambda i: -sizes[i] * (0.5 + self.random.random()))

    def insert(self, order: list[int], current: int, piles: Sequence[_Pile]) -> Heights:
        """Puts `current` into `order`, and the `piles` of it, where it costs least, and gives the heights
        then.
        """
        rank = dict(zip(order, range(len(order)), strict=True))
        near = sorted((j for j in self.neighbours[current] if j in rank), key=rank.__getitem__)
        options = [
            list(heights) for heights in zip(*(p.with_inserted(current, near) for p in piles), strict=True)
        ]
        costs = [_cost(heights) for heights in options]
        least = min(costs) + CLOSE
        place = self.random.choice([p for p, cost in enumerate(costs) if cost <= least])
        at = rank[near[place]] if place < len(near) else len(order)
        for pile in piles:
            self.push(pile.low, pile.sizes, current, near[:place], order[at:])
            self.push(pile.high, pile.sizes, current, near[place:], order[at - 1 :: -1] if at else ())
        order.insert(at, current)
        return options[place]

    def push(
        self,
        ends: list[float],
        sizes: Sequence[float],
        current: int,
        under: Iterable[int],
        over: Iterable[int],
    ) -> None:
        """Put `current` on those of its neighbours that are `under` it, and raise what is `over` it."""
        ends[current] = max((0.0, *(ends[j] for j in under))) + sizes[current]
        starts = dict.fromkeys(self.neighbours[current], ends[current])
        looks = len(ends) // 4 + len(starts)
        for i in over:
            if i in starts and starts[i] + sizes[i] > ends[i]:
                end = ends[i] = starts[i] + sizes[i]
                near = self.neighbours[i]
                looks += len(near)
                for j in near:
                    if end > starts.get(j, 0.0):
                        starts[j] = end
        self.budget.spend(looks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pile:
    """A stacking at one point: where each buffer ends, measured from below and from above; 0 for those that
    are not in it.
    """

    sizes: Sequence[float]
    low: list[float]
    high: list[float]

    def with_inserted(self, current: int, near: Sequence[int]) -> list[float]:
        """The heights with `current` on the first 0, 1, 2, … of `near`, and the others on it."""
        below = accumulate((self.low[j] for j in near), max, initial=0.0)
        above = list(accumulate((self.high[j] for j in reversed(near)), max, initial=0.0))
        rest, size = max(self.low), self.sizes[current]
        return [max(rest, under + size + over) for under, over in zip(below, reversed(above), strict=True)]
