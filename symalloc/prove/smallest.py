"""The smallest point found where a condition holds: least sum, then lexicographic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

__all__ = ["minimise_point", "order"]

Accepts = Callable[[Mapping[str, int]], bool]


def order(point: Mapping[str, int]) -> tuple[int, tuple[int, ...]]:
    """What points are compared by: the sum of sizes, then the values in the order of names."""
    return sum(map(abs, point.values())), tuple(point[n] for n in sorted(point))


def minimise_point(
    points: Iterable[Mapping[str, int]], accepts: Accepts, lower: Mapping[str, int], *, steps: int
) -> dict[str, int] | None:
    """The smallest of `points`, made smaller one coordinate at a time as long as `accepts` agrees; None for no points."""
    candidates = sorted(points, key=order)
    if not candidates:
        return None
    best = dict(candidates[0])
    improved = True
    while improved and steps > 0:
        improved = False
        for name in sorted(best, key=lambda n: -abs(best[n])):
            goal = max(lower[name], min(0, best[name]))
            value, used = _descend(best, name, goal, accepts)
            steps -= used
            if value != best[name]:
                best[name] = value
                improved = True
    return best


def _descend(point: dict[str, int], name: str, goal: int, accepts: Accepts) -> tuple[int, int]:
    """The value nearest to `goal` that a bisection finds acceptable, and the points tried."""
    value = point[name]
    if value == goal:
        return value, 0
    tried = 1
    if accepts({**point, name: goal}):
        return goal, tried
    rejected = goal
    while abs(value - rejected) > 1:
        tried += 1
        middle = (value + rejected) // 2
        if accepts({**point, name: middle}):
            value = middle
        else:
            rejected = middle
    for near in range(1, 5):
        trial = point[name] - near if goal < point[name] else point[name] + near
        if value == point[name] and min(goal, point[name]) <= trial <= max(goal, point[name]):
            tried += 1
            if accepts({**point, name: trial}):
                return trial, tried
    return value, tried
