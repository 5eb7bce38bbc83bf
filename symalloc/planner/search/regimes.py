"""Several stackings with a condition on the shape, for problems where none is good everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from symalloc.planner.plan_budget import PlanBudget
from symalloc.planner.search.grid import Truths, Values
from symalloc.planner.search.search_instance import SearchInstance
from symalloc.planner.search.stacking import Score
from symalloc.size.condition import Condition, le
from symalloc.size.expr import symbol

MOST_CONDITIONS = 200
MOST_TRIED = 1000  # many hold at the same points as another
PROMISING = 6  # conditions that are followed up, by either measure
FEW_LOOKS = 50  # what asking for the best candidate counts
AT_ONCE = 200  # ratios that are compared for what one look counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A choice between candidates: `choices[k]` is taken where the k-th of `conditions` is the first to hold,
    the last one for the rest.

    `values` are the ratios reached, meaningless outside the points that were asked for.
    """

    conditions: tuple[Condition, ...]
    choices: tuple[int, ...]
    values: Values

    @property
    def score(self) -> Score:
        """The score over all points."""
        return Score.of(self.values)


def split(
    problem: SearchInstance, candidates: Sequence[Values], most: int, budget: PlanBudget | None = None
) -> Split:
    """Return the best use found of at most `most` candidates (each given by its ratios over the grid).

    A condition compares a symbol with a constant or two sizes.  Once `budget` is exhausted no more are tried.
    """
    found = list(_conditions(problem))
    everywhere = np.ones(len(problem.grid), dtype=bool)
    truths = np.array([mask for _, mask in found], dtype=bool).reshape(len(found), len(problem.grid))
    choosing = _Choosing(
        table=np.stack(candidates),
        conditions=[condition for condition, _ in found],
        truths=truths,
        budget=PlanBudget() if budget is None else budget,
    )
    return choosing.grown(everywhere, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choosing:
    """`table` holds the ratios of each candidate, `truths` where each of `conditions` holds."""

    table: Values
    conditions: Sequence[Condition]
    truths: Truths
    budget: PlanBudget

    def grown(self, rest: Truths, most: int) -> Split:
        """Return the best found for the points of `rest` with at most `most` candidates."""
        single = self.best(rest)
        best = Split(conditions=(), choices=(single,), values=self.table[single])
        if most == 1 or not self.gains(best.values, rest) or self.budget.exhausted:
            return best
        for number in self.promising(rest):
            mask = self.truths[number] & rest
            inside = self.best(mask)
            other = self.grown(rest & ~mask, most - 1)
            values = np.where(mask, self.table[inside], other.values)
            if Score.of(values[rest]) < Score.of(best.values[rest]):
                best = Split(
                    conditions=(self.conditions[number], *other.conditions),
                    choices=(inside, *other.choices),
                    values=values,
                )
        return best

    def gains(self, values: Values, rest: Truths) -> bool:
        """Return whether the best candidate at each point of `rest` would be better than `values`."""
        return Score.of(self.table[:, rest].min(axis=0)) < Score.of(values[rest])

    def best(self, mask: Truths) -> int:
        """The candidate with the least score over the points of `mask`."""
        self.budget.spend(FEW_LOOKS)
        inside = self.table[:, mask]
        worst, mean = inside.max(axis=1).round(9), inside.mean(axis=1).round(9)
        return int(np.lexsort((mean, worst))[0])

    def promising(self, rest: Truths) -> list[int]:
        """The few conditions, by number, after which two candidates do best, and those where one does best by
        itself, on as many points as possible.
        """
        table, inside = self.table[:, rest], self.truths[:, rest]
        telling = np.flatnonzero(inside.any(axis=1) & ~inside.all(axis=1))
        inside = inside[telling]
        self.budget.spend(FEW_LOOKS + inside.size * len(table) // AT_ONCE)
        worst_in, sums_in = _least(table, inside)
        worst_out, sums_out = _least(table, ~inside)
        worst = np.maximum(worst_in, worst_out).tolist()
        means = ((sums_in + sums_out) / max(table.shape[1], 1)).round(9).tolist()
        after = sorted(zip(worst, means, telling.tolist(), strict=True))
        counts = (-inside.sum(axis=1)).tolist()
        alone = sorted(zip(worst_in.tolist(), counts, telling.tolist(), strict=True))
        chosen = [number for *_, number in (*after[:PROMISING], *alone[:PROMISING])]
        return list(dict.fromkeys(chosen))


def _least(table: Values, masks: Truths) -> tuple[Values, Values]:
    """For each of `masks` the worst ratio and the sum of ratios of the candidate that does best where it
    holds.
    """
    worst = np.where(masks[:, None, :], table[None, :, :], -np.inf).max(axis=2, initial=-np.inf).round(9)
    sums = masks @ table.T
    means = (sums / np.maximum(masks.sum(axis=1), 1)[:, None]).round(9)
    least = worst.min(axis=1, initial=np.inf)
    chosen = np.where(worst == least[:, None], means, np.inf).argmin(axis=1)
    return least, sums[np.arange(len(sums)), chosen]


def _conditions(problem: SearchInstance) -> Iterator[tuple[Condition, Truths]]:
    """Conditions that tell points of the grid apart, with the points where they hold; simple ones first."""
    seen: set[bytes] = set()
    for test, mask in problem.grid.truths(islice(_tests(problem), MOST_TRIED)):
        if mask.any() and not mask.all() and mask.tobytes() not in seen:
            seen.add(mask.tobytes())
            yield test, mask
            if len(seen) >= MOST_CONDITIONS:
                return


def _tests(problem: SearchInstance) -> Iterator[Condition]:
    for index, name in enumerate(problem.grid.names):
        for extent in sorted({point[index] for point in problem.grid.points}):
            yield le(symbol(name), extent)
    for position, left in enumerate(problem.sizes):
        for right in problem.sizes[:position]:
            yield le(left, right)
            yield le(right, left)
