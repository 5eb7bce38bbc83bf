"""Local search over stackings: take some buffers out, put each back where the arena stays lowest.

Ruin and recreate (Schrimpf et al., Record Breaking Optimization Results Using the Ruin and Recreate
Principle, 2000).  The height with a buffer put back follows from the longest paths below and above each of
its neighbours, as in Taillard's search for job shops (1994): all places are judged in one step, at all
points of the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from symalloc.plan.grid import Values
from symalloc.plan.instance import Instance
from symalloc.plan.score import tops

__all__ = ["improve"]

CLOSE = 1e-9  # costs nearer than this are alike
MOST_REMOVED = 7
WARMTH = 0.004  # how much worse than the current stacking a neighbour may be, of the floor
WEIGHT_OF_MEAN = 0.1


def improve(
    problem: Instance,
    order: Sequence[int],
    points: Sequence[int],
    *,
    target: float,
    steps: int,
    random: Random,
    expired: Callable[[], bool],
) -> tuple[list[int], int]:
    """A stacking at least as good as `order` at these points of the grid, and the steps taken.

    Stops when the worst ratio at the points is at most `target`, after `steps`, or when time has expired.
    """
    search = _Search(
        adjacent=problem.adjacent,
        table=np.ascontiguousarray(problem.table[:, list(points)]),
        floors=problem.floors[list(points)],
        random=random,
    )
    current = best = list(order)
    cost, worst = search.cost(search.heights(current))
    least = cost
    for step in range(steps):
        if worst <= target or expired():
            return best, step
        trial = search.neighbour(current)
        trial_cost, trial_worst = search.cost(search.heights(trial))
        if trial_cost <= cost + WARMTH * random.random() * (1 - step / steps):
            current, cost = trial, trial_cost
        if trial_cost < least - CLOSE:
            best, least, worst = trial, trial_cost, trial_worst
    return best, steps


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    adjacent: Sequence[Sequence[int]]
    table: Values
    floors: Values
    random: Random

    def heights(self, order: Sequence[int]) -> Values:
        heights: Values = tops(order, self.adjacent, self.table).max(axis=0)
        return heights

    def cost(self, heights: Values) -> tuple[float, float]:
        """What is minimised, and the worst ratio."""
        excess = heights / self.floors
        worst = float(excess.max())
        return worst + WEIGHT_OF_MEAN * float(excess.mean()), worst

    def neighbour(self, order: Sequence[int]) -> list[int]:
        """Another stacking near `order`."""
        low = tops(order, self.adjacent, self.table)
        high = tops(reversed(order), self.adjacent, self.table)
        order = self.relisted(order, low)
        removed = self.ruin(low, high)
        kept = [i for i in order if i not in removed]
        for current in self.sequence(removed):
            self.insert(kept, current)
        return kept

    def relisted(self, order: Sequence[int], low: Values) -> list[int]:
        """The same stacking, listed by offsets at some point: where buffers can be put back depends on it."""
        point = self.random.randrange(len(self.floors))
        starts = (low[:, point] - self.table[:, point]).tolist()
        return sorted(order, key=starts.__getitem__)

    def ruin(self, low: Values, high: Values) -> set[int]:
        """A buffer on a longest path at a point where the ratio is bad, and some that it meets."""
        through = low + high - self.table
        heights = through.max(axis=0)
        excess = heights / self.floors - 1.0 + 1e-6
        (point,) = self.random.choices(range(len(excess)), weights=excess.tolist())
        critical = np.nonzero(through[:, point] >= heights[point] * (1 - CLOSE))[0].tolist()
        first = self.random.choice(critical)
        around = self.adjacent[first]
        count = min(self.random.randint(0, MOST_REMOVED), len(around))
        return {first, *self.random.sample(around, count)}

    def sequence(self, removed: set[int]) -> list[int]:
        """Large ones first, with some noise."""
        point = self.random.randrange(len(self.floors))
        return sorted(sorted(removed), key=lambda i: -self.table[i, point] * (0.5 + self.random.random()))

    def insert(self, order: list[int], current: int) -> None:
        """Puts `current` into `order` where it costs least."""
        low = tops(order, self.adjacent, self.table)
        high = tops(reversed(order), self.adjacent, self.table)
        rank = {i: position for position, i in enumerate(order)}
        near = sorted((j for j in self.adjacent[current] if j in rank), key=rank.__getitem__)
        nothing = np.zeros((1, len(self.floors)))
        below = np.maximum.accumulate(np.concatenate((nothing, low[near])), axis=0)
        above = np.maximum.accumulate(np.concatenate((nothing, high[near[::-1]])), axis=0)[::-1]
        heights = np.maximum(below + above + self.table[current], low.max(axis=0))
        excess = heights / self.floors
        costs = excess.max(axis=1) + WEIGHT_OF_MEAN * excess.mean(axis=1)
        places = np.nonzero(costs <= costs.min() + CLOSE)[0].tolist()
        place = self.random.choice(places)
        order.insert(rank[near[place]] if place < len(near) else len(order), current)
