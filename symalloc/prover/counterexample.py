"""The parts of a proof that a person reads: the smallest counterexample, the precondition, the reason.

Points are compared by their largest value, then value by value in the order of the symbols' names.  Of two
values the one nearer to zero is the smaller; of -v and v it is -v.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from symalloc.prover.bounds import Box, interval
from symalloc.prover.budget import Meter
from symalloc.prover.normalize import NormalizedDomain, read_bound
from symalloc.prover.precondition import precondition
from symalloc.prover.query import Query, satisfies
from symalloc.prover.refute import refute
from symalloc.prover.solver import Solver
from symalloc.prover.verdict import Proof, Verdict
from symalloc.size.condition import TRUE, Condition, ge, le
from symalloc.size.expr import Expr, symbol

Point = dict[str, int]
Found = Point | bool | None  # a point, False where it is proved that there is none, None where undecided
MOST_POINTS = 120  # that are looked at one by one before anything else is tried
STEPS = 100  # bounds that are tried on the way to one smallest value


def explain_proof(query: Query, proof: Proof, solver: Solver) -> Proof:
    """`proof` with its counterexample made as small as can be and a precondition looked for."""
    if proof.verdict is Verdict.ALWAYS_VALID:
        return proof
    point, proved = _smallest_counterexample(query, proof, solver)
    wanted = proof.verdict is Verdict.RUNTIME_CHECK and not proof.unknown
    return replace(
        proof,
        counterexample=point,
        smallest=proved,
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


def _smallest_counterexample(
    query: Query, proof: Proof, solver: Solver
) -> tuple[Mapping[str, int] | None, bool]:
    """The smallest point found, and True where it is proved smallest."""
    domain = query.domain
    known: list[Mapping[str, int]] = list(query.failing)
    if proof.counterexample is not None:
        known.append(proof.counterexample)
    if not known:
        return None, False
    least = min(known, key=lambda point: order(domain.to_domain(point)))
    fails = TRUE if proof.verdict is Verdict.ALWAYS_INVALID else query.fails
    solver.begin()
    return smallest(dict(least), fails, domain, solver)


def order(point: Mapping[str, int]) -> tuple[int, list[tuple[int, int]]]:
    """The key that points are compared by."""
    values = [(abs(point[name]), point[name]) for name in sorted(point)]
    return max((size for size, _ in values), default=0), values


def smallest(
    start: Point, condition: Condition, domain: NormalizedDomain, solver: Solver
) -> tuple[Point, bool]:
    """The smallest point of `domain` where `condition` holds, and True where it is proved smallest.

    `start` is such a point, in terms of `domain.box` as all points and conditions here; compared are the
    points of the domain that they stand for.
    """
    search = _Search(start, condition, domain, solver)
    proved = search.lower_largest() and all(map(search.lower_value, domain.names))
    return search.best, proved


class _Search:
    """Makes `best` smaller until no smaller point is left, or the budget is used up.

    `box` and `conditions` are what is known of the smallest point.
    """

    def __init__(self, start: Point, condition: Condition, domain: NormalizedDomain, solver: Solver) -> None:
        self.domain, self.solver = domain, solver
        self.conditions = tuple(c for c in (*domain.facts, condition) if c is not TRUE)
        self.box = domain.box
        self.meter = Meter(solver.budget.sampling_steps)
        self.best, self.shown, self.rank = start, dict[str, int](), order({})
        self._take(start)
        self._descend()

    def _take(self, point: Point) -> None:
        self.best, self.shown = point, self.domain.to_domain(point)
        self.rank = order(self.shown)

    # -- making a point smaller ----------------------------------------------------------------------------

    def _better(self, point: Point) -> bool:
        """Take `point` where it is smaller and satisfies the conditions."""
        self.meter.spend(1)
        try:
            better = self.domain.box.holds(point) and order(self.domain.to_domain(point)) < self.rank
        except ZeroDivisionError:  # the value of a symbol that is solved for
            return False
        if better and satisfies(point, self.conditions):
            self._take(point)
            return True
        return False

    def _descend(self) -> None:
        """Move all coordinates together, then one by one, towards zero, as long as the point gets smaller."""
        box = self.domain.box
        goal = box.origin()
        if self._better(goal):
            return
        largest = max((abs(value - goal[n]) for n, value in self.best.items()), default=0)
        self._bisect(lambda t: {n: _clipped(box, n, goal[n], t) for n in goal}, largest, rejected=0)
        for name in sorted(goal):
            here = self.best[name]
            sign = 1 if here > goal[name] else -1
            self._bisect(lambda t, n=name, s=sign: {**self.best, n: goal[n] + s * t}, abs(here - goal[name]))  # type: ignore[misc]

    def _bisect(self, at: Callable[[int], Point], known: int, rejected: int = -1) -> None:
        """Look for the least t between `rejected` and `known` at which `at` gives a better point."""
        while known - rejected > 1 and self.meter.left > 0:
            middle = (known + rejected) // 2 if rejected >= 0 else 0
            if self._better(at(middle)):
                known = middle
            else:
                rejected = middle

    # -- proving that nothing is smaller -------------------------------------------------------------------

    def lower_largest(self) -> bool:
        """Bring down the largest value; True where no point is proved to have a smaller one."""
        names = self.domain.names
        least = max(map(self._least, names), default=0)
        proved = self._lowered(
            lambda: self.rank[0], lambda size: dict.fromkeys(names, (-size, size)), least=least
        )
        self._keep(dict.fromkeys(names, (-self.rank[0], self.rank[0])))
        return proved

    def lower_value(self, name: str) -> bool:
        """Bring `name` nearer to zero, the values before it fixed; True where that is proved impossible."""
        proved = self._lowered(
            lambda: abs(self.shown[name]), lambda size: {name: (-size, size)}, least=self._least(name)
        )
        value = self.shown[name]
        if proved and value > 0:
            answer = self._find({name: (-value, -value)})
            proved = answer is not None
            if isinstance(answer, dict):
                self._take(answer)
        self._keep({name: (self.shown[name], self.shown[name])})
        return proved

    def _least(self, name: str) -> int:
        """A distance from zero that no value of `name` is below."""
        low, high = interval(self._value(name), self.box)
        return max(low, -high, 0)

    def _lowered(
        self, size: Callable[[], int], within: Callable[[int], dict[str, tuple[int, int]]], *, least: int
    ) -> bool:
        """Bring `size` of the best point down; True where it is proved to be the least."""
        for step in range(STEPS):
            here = size()
            if here <= least:
                return True
            tried = here - 1 if step < 4 else (least + here) // 2
            answer = self._find(within(tried))
            if answer is None:
                return False
            if isinstance(answer, dict):
                self._take(answer)
                self._descend()
            else:
                least = tried + 1
        return False

    def _find(self, limits: Mapping[str, tuple[int, int]]) -> Found:
        """A point within `limits` that satisfies the conditions, or False where there is none."""
        region = self._region(limits)
        if region is None:
            return False
        conditions, box = region
        answer = _by_looking(conditions, box)
        if answer is None and refute(conditions, box, self.solver.budget) is not None:
            return False
        if answer is None:
            asked = self.solver.ask(conditions, box)
            answer = False if isinstance(asked, str) else asked
        return answer

    def _keep(self, limits: Mapping[str, tuple[int, int]]) -> None:
        region = self._region(limits)
        if region is not None:
            self.conditions, self.box = region

    def _region(self, limits: Mapping[str, tuple[int, int]]) -> tuple[tuple[Condition, ...], Box] | None:
        """The conditions, and a box, of the points within `limits`; None where a bound excludes all."""
        box, more = self.box.copy(), list[Condition]()
        for name, (low, high) in limits.items():
            if name in box.lower:
                if not box.narrow(name, low, high):
                    return None
                continue
            for limit in (ge(self._value(name), low), le(self._value(name), high)):
                bound = read_bound(limit)
                if limit.as_bool is False or (bound is not None and not box.narrow(*bound)):
                    return None
                if bound is None and limit.as_bool is None:
                    more.append(limit)
        return (*self.conditions, *more), box

    def _value(self, name: str) -> Expr:
        return self.domain.solved.get(name) or symbol(name)


def _by_looking(conditions: Sequence[Condition], box: Box) -> Found:
    """Evaluate at each point, where these are few; symbols in no condition stay near zero."""
    names = sorted(frozenset().union(*(c.symbols for c in conditions)))
    sides = [box.upper[n] - box.lower[n] + 1 for n in names]
    if prod(sides) > MOST_POINTS:
        return None
    corner = box.origin()
    for values in product(*(range(box.lower[n], box.upper[n] + 1) for n in names)):
        corner.update(zip(names, values, strict=True))
        if satisfies(corner, conditions):
            return corner
    return False


def _clipped(box: Box, name: str, goal: int, distance: int) -> int:
    """The value at `distance` from `goal`, away from zero, as far as the bounds go."""
    moved = goal + distance if goal >= 0 else goal - distance
    return max(box.lower[name], min(moved, box.upper[name]))
