"""Counterexamples a person can read: the smallest point found, by least sum, then lexicographic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import permutations

from symalloc.prover.point_search import corner, first_points, satisfies
from symalloc.prover.precondition import precondition
from symalloc.prover.query import Query
from symalloc.prover.verdict import Proof, Verdict

Accepts = Callable[[Mapping[str, int]], bool]


def explain_proof(query: Query, proof: Proof) -> Proof:
    """`proof` with its counterexample made small and a precondition looked for."""
    if proof.verdict is Verdict.ALWAYS_VALID:
        return proof
    point = _smallest_counterexample(query, proof)
    wanted = proof.verdict is Verdict.RUNTIME_CHECK and not proof.unknown
    return replace(
        proof,
        counterexample=point,
        precondition=precondition(query) if wanted else None,
        reason=proof.reason or _undefined(query, point),
    )


def _undefined(query: Query, point: Mapping[str, int] | None) -> str | None:
    """That a divisor of the constraint is below 1 at `point`, in words."""
    below = () if point is None else query.constraint.divisors
    there = {} if point is None else query.domain.to_domain(point)
    for divisor in sorted(below, key=lambda d: (len(d.key), d.key)):
        try:
            value = divisor.evaluate(there)
        except ZeroDivisionError:
            continue
        if value < 1:
            return f"the divisor `{divisor}` can be {value}; a divisor must be at least 1"
    return None


def _smallest_counterexample(query: Query, proof: Proof) -> Mapping[str, int] | None:
    if query.solutions is not None:
        return proof.counterexample  # the least already
    domain, failing = query.domain, query.failing
    if not failing and proof.verdict is Verdict.ALWAYS_INVALID:
        failing = (corner(domain) or first_points(domain))[:8]
    return minimise_point(
        failing,
        lambda p: domain.box.holds(p) and satisfies(p, (*domain.facts, query.fails)),
        domain.box.lower,
        steps=400,
    )


def order(point: Mapping[str, int]) -> tuple[int, tuple[int, ...]]:
    """The key that points are compared by: the sum of sizes, then the values in the order of names."""
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
    search = _Minimizer(dict(candidates[0]), accepts, lower, steps)
    search.best = search.descended(search.best)
    search.trade()
    return search.best


class _Minimizer:
    def __init__(self, best: dict[str, int], accepts: Accepts, lower: Mapping[str, int], steps: int) -> None:
        self.best, self.lower, self.steps = best, lower, steps
        self._accepts = accepts

    def accepts(self, point: Mapping[str, int]) -> bool:
        self.steps -= 1
        return self._accepts(point)

    def descended(self, point: dict[str, int]) -> dict[str, int]:
        """`point` with coordinates made smaller, the largest first, until none changes."""
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
                return self.descended(trial)
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
