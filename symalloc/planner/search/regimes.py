"""Several stackings with a condition on the shape, for problems where none is good everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from symalloc.planner.search.grid import Truths, Values
from symalloc.planner.search.search_instance import SearchInstance
from symalloc.planner.search.stacking import Score
from symalloc.size.condition import Condition, le
from symalloc.size.expr import symbol

MOST_CONDITIONS = 200
MOST_TRIED = 1000  # many hold at the same points as another
PROMISING = 6  # conditions that are followed up, by either measure


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


def split(problem: SearchInstance, candidates: Sequence[Values], most: int) -> Split:
    """Return the best use found of at most `most` candidates (each given by its ratios over the grid).

    A condition compares a symbol with a constant or two sizes.
    """
    everywhere = np.ones(len(problem.grid), dtype=bool)
    return _grow(np.stack(candidates), everywhere, list(_conditions(problem)), most)


def _grow(table: Values, rest: Truths, tests: Sequence[tuple[Condition, Truths]], most: int) -> Split:
    """Return the best found for the points of `rest` with at most `most` candidates."""
    single = _best(table, rest)
    best = Split(conditions=(), choices=(single,), values=table[single])
    if most == 1 or Score.of(best.values[rest]).worst <= 1:
        return best
    for condition, everywhere in _promising(table, rest, tests):
        mask = everywhere & rest
        inside = _best(table, mask)
        other = _grow(table, rest & ~mask, tests, most - 1)
        values = np.where(mask, table[inside], other.values)
        if Score.of(values[rest]) < Score.of(best.values[rest]):
            best = Split(
                conditions=(condition, *other.conditions), choices=(inside, *other.choices), values=values
            )
    return best


def _promising(
    table: Values, rest: Truths, tests: Sequence[tuple[Condition, Truths]]
) -> list[tuple[Condition, Truths]]:
    """The few conditions after which two candidates do best, and those where one does best by itself, on as
    many points as possible.
    """
    after: list[tuple[Score, int]] = []
    alone: list[tuple[float, int, int]] = []
    for index, (_, everywhere) in enumerate(tests):
        mask, other = everywhere & rest, ~everywhere & rest
        if mask.any() and other.any():
            inside, outside = _best(table, mask), _best(table, other)
            after.append((Score.of(np.where(mask, table[inside], table[outside])[rest]), index))
            alone.append((Score.of(table[inside, mask]).worst, -int(mask.sum()), index))
    chosen = [i for *_, i in sorted(after)[:PROMISING]] + [i for *_, i in sorted(alone)[:PROMISING]]
    return [tests[i] for i in dict.fromkeys(chosen)]


def _best(table: Values, mask: Truths) -> int:
    """The candidate with the least score over the points of `mask`."""
    inside = table[:, mask]
    worst, mean = inside.max(axis=1).round(9), inside.mean(axis=1).round(9)
    return int(np.lexsort((mean, worst))[0])


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
