"""Several stackings with a condition on the shape, for problems where none is good everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from symalloc.plan.grid import Values, holds
from symalloc.plan.instance import Instance
from symalloc.plan.score import Score, score
from symalloc.size.condition import Condition, le
from symalloc.size.expr import symbol

__all__ = ["Split", "split"]

Mask: TypeAlias = NDArray[np.bool_]

MOST_CONDITIONS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """`choices[k]` is the candidate taken where the k-th of `conditions` is the first to hold; the last one
    is for the rest.
    """

    conditions: tuple[Condition, ...]
    choices: tuple[int, ...]
    score: Score


def split(problem: Instance, candidates: Sequence[Values], most: int) -> Split:
    """The best use of at most `most` candidates (each given by its ratios over the grid).

    Grown one condition at a time, on what is left over by those before; a condition compares a symbol with a
    constant or two sizes.
    """
    table = np.stack(candidates)
    tests = list(_conditions(problem))
    conditions: list[Condition] = []
    choices: list[int] = []
    rest = np.ones(len(problem.grid), dtype=bool)
    taken = np.ones(len(problem.grid))
    last = _best(table, rest)
    found = Split(conditions=(), choices=(last,), score=score(table[last]))
    while len(choices) + 1 < most:
        step = _next(table, rest, tests)
        if step is None:
            break
        test, mask, inside, last = step
        conditions.append(test)
        choices.append(inside)
        taken[mask] = table[inside, mask]
        rest &= ~mask
        values = np.where(rest, table[last], taken)
        found = Split(conditions=tuple(conditions), choices=(*choices, last), score=score(values))
    return found


def _best(table: Values, mask: Mask) -> int:
    """The candidate with the least score over the points of `mask`."""
    inside = table[:, mask]
    return min(range(len(table)), key=lambda k: score(inside[k]))


def _next(
    table: Values, rest: Mask, tests: Sequence[tuple[Condition, Mask]]
) -> tuple[Condition, Mask, int, int] | None:
    """The condition that helps most on `rest`: it, its points, the candidates inside and outside."""
    base = score(table[_best(table, rest), rest])
    found: tuple[Score, int, tuple[Condition, Mask, int, int]] | None = None
    for index, (test, everywhere) in enumerate(tests):
        mask, other = everywhere & rest, ~everywhere & rest
        if not mask.any() or not other.any():
            continue
        inside, outside = _best(table, mask), _best(table, other)
        if inside == outside:
            continue
        value = score(np.where(mask, table[inside], table[outside])[rest])
        if value < base and (found is None or (value, index) < found[:2]):
            found = (value, index, (test, mask, inside, outside))
    return None if found is None else found[2]


def _conditions(problem: Instance) -> Iterator[tuple[Condition, Mask]]:
    """Conditions that tell points of the grid apart, with the points where they hold; simple ones first."""
    columns, count = problem.grid.columns, len(problem.grid)
    seen: set[bytes] = set()
    for test in _tests(problem):
        mask = holds(test, columns, count)
        if mask.any() and not mask.all() and mask.tobytes() not in seen:
            seen.add(mask.tobytes())
            yield test, mask
            if len(seen) >= MOST_CONDITIONS:
                return


def _tests(problem: Instance) -> Iterator[Condition]:
    for index, name in enumerate(problem.grid.names):
        for extent in sorted({point[index] for point in problem.grid.points}):
            yield le(symbol(name), extent)
    for position, left in enumerate(problem.sizes):
        for right in problem.sizes[:position]:
            yield le(left, right)
