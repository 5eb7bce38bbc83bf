"""The smallest point found where a condition holds: least sum, then lexicographic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import permutations

__all__ = ["minimise_point", "order"]

Accepts = Callable[[Mapping[str, int]], bool]


def order(point: Mapping[str, int]) -> tuple[int, tuple[int, ...]]:
    """What points are compared by: the sum of sizes, then the values in the order of names."""
    return sum(map(abs, point.values())), tuple(point[n] for n in sorted(point))


def minimise_point(
    points: Iterable[Mapping[str, int]], accepts: Accepts, lower: Mapping[str, int], *, steps: int
) -> dict[str, int] | None:
    """The smallest of `points`, made smaller one coordinate at a time as long as `accepts` agrees; None for
    no points.
    """
    candidates = sorted(points, key=order)
    if not candidates:
        return None
    search = _Search(dict(candidates[0]), accepts, lower, steps)
    search.descend_all()
    search.trade()
    return search.best


class _Search:
    def __init__(self, best: dict[str, int], accepts: Accepts, lower: Mapping[str, int], steps: int) -> None:
        self.best, self.lower, self.steps = best, lower, steps
        self._accepts = accepts

    def accepts(self, point: Mapping[str, int]) -> bool:
        self.steps -= 1
        return self._accepts(point)

    def descend_all(self) -> None:
        """Make coordinates smaller, the largest first, until none changes."""
        self.best = self._descended(self.best)

    def _descended(self, point: dict[str, int]) -> dict[str, int]:
        improved = True
        while improved and self.steps > 0:
            improved = False
            for name in sorted(point, key=lambda n: -abs(point[n])):
                goal = max(self.lower[name], 0) if point[name] >= 0 else 0
                value = _descend(point, name, goal, self.accepts)
                improved = improved or value != point[name]
                point = {**point, name: value}
        return point

    def trade(self) -> None:
        """Make the largest coordinate smaller at the expense of another, as long as the sum falls."""
        for name, other in permutations(sorted(self.best), 2):
            step = abs(self.best[name]) // 2
            while step and self.steps > 0:
                moved = self._traded(name, other, step)
                if moved is not None and order(moved) < order(self.best):
                    self.best = moved
                    step = min(step, abs(self.best[name]) // 2)
                else:
                    step //= 2

    def _traded(self, name: str, other: str, step: int) -> dict[str, int] | None:
        smaller = {**self.best, name: self.best[name] - step}
        if smaller[name] < max(self.lower[name], 0):
            return None
        rise = 1
        while rise < step and self.steps > 0:
            trial = {**smaller, other: smaller[other] + rise}
            if self.accepts(trial):
                return self._descended(trial)
            rise *= 2
        return None


def _descend(point: dict[str, int], name: str, goal: int, accepts: Accepts) -> int:
    """The value nearest to `goal` that a bisection finds acceptable."""
    value = point[name]
    if value == goal or accepts({**point, name: goal}):
        return goal
    rejected = goal
    while abs(value - rejected) > 1:
        middle = (value + rejected) // 2
        if accepts({**point, name: middle}):
            value = middle
        else:
            rejected = middle
    if value == point[name]:
        towards = -1 if goal < value else 1
        for near in range(1, min(5, abs(value - goal))):
            if accepts({**point, name: value + towards * near}):
                return value + towards * near
    return value
