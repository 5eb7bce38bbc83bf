"""Layer `sampling`: points where a claim holds or fails, found by looking.

First a small joint grid, then corners, powers of two and axes; last a guided walk that moves one symbol at
a time to where the first violated relation would hold (a secant step, exact for linear relations).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from operator import add, le

from symalloc.prover.bounds import Box
from symalloc.prover.budget import Budget, excess
from symalloc.prover.equations import divisor_points
from symalloc.prover.normalize import NormalizedDomain
from symalloc.size.condition import Condition, Or, Relation

Point = dict[str, int]
FAR = (64, 4096)
WIDTHS = {1: 9, 2: 4, 3: 3, 4: 2}


def satisfies(point: Mapping[str, int], conditions: Iterable[Condition]) -> bool:
    """True if every condition holds at `point`; one with a divisor of zero does not."""
    try:
        for condition in conditions:  # a loop: a generator costs a third more, and this is where sampling is
            if not condition.evaluate(point):
                return False
    except ZeroDivisionError:
        return False
    return True


def corner(domain: NormalizedDomain) -> list[Point]:
    """The points known so far; where there are none, the lower corner if it lies in the domain."""
    if not domain.points:
        _keep(domain, (domain.box.origin(),))
    return domain.points


def first_points(domain: NormalizedDomain) -> list[Point]:
    """A few points of the domain, most near its lower corner, those first; computed once."""
    if domain.sampled < 1:
        domain.sampled = 1
        _keep(domain, _grid(domain.box))
        _keep(domain, _far(domain.box))
        if not domain.points and domain.facts:
            found = walk(domain.facts, domain.box, (domain.box.origin(),), steps=400)
            domain.points += [found] if found else []
    return domain.points


def more_points(domain: NormalizedDomain) -> list[Point]:
    """The wider sample, which holds the first one; computed once."""
    first_points(domain)
    if domain.sampled < 2:
        domain.sampled = 2
        _keep(domain, _spread(domain.box))
        if domain.facts and len(domain.points) < 12:
            starts = list(_spread(domain.box))[:24]
            for start in starts:
                found = walk(domain.facts, domain.box, (start,), steps=60)
                if found is not None and found not in domain.points:
                    domain.points.append(found)
    return domain.points


def walk(conditions: Sequence[Condition], box: Box, starts: Iterable[Point], *, steps: int) -> Point | None:
    """A point of `box` where all `conditions` hold, by repairing violated relations from each start in
    turn.
    """
    for start in starts:
        point = dict(start)
        seen = 0
        while steps > 0:
            violated = [c for c in conditions if not satisfies(point, (c,))]
            steps -= 1
            seen += 1
            if not violated:
                return point
            moved = _repair(point, violated, conditions, box)
            if moved is None or seen > 12:
                break
            steps -= 4
            point = moved
    return None


def search(goal: Condition, domain: NormalizedDomain, budget: Budget) -> Point | None:
    """A point of the domain where `goal` holds; it joins the domain's points."""
    branches = goal.operands if isinstance(goal, Or) else (goal,)
    for branch in branches:
        wanted = (*domain.facts, branch)
        starts, most = domain.points[:24], budget.sampling_steps // excess(wanted)
        found = _solved(branch, wanted, domain.box)
        found = found or walk(wanted, domain.box, starts, steps=most // len(branches))
        found = found or _in_wide_grid(wanted, domain.box, most)
        if found is not None:
            domain.points.append(found)
            return found
    return None


def _in_wide_grid(wanted: Sequence[Condition], box: Box, steps: int) -> Point | None:
    """The first point that fits in the largest joint grid of at most `steps` points."""
    names = sorted(frozenset().union(*(c.symbols for c in wanted)))
    if not names:
        return None
    width = min(40, int(steps ** (1 / len(names))))
    base = box.origin()
    ranges = [range(base[n], min(base[n] + width, box.upper[n] + 1)) for n in names]
    for values in product(*ranges):
        point = {**base, **dict(zip(names, values, strict=True))}
        if satisfies(point, wanted):
            return point
    return None


def _solved(branch: Condition, wanted: Sequence[Condition], box: Box) -> Point | None:
    """A point from the divisors of a constant, where `branch` has an equation `c * x * y == constant`."""
    base = box.origin()
    for relation in branch.relations:
        for solution in divisor_points(relation, box):
            point = {**base, **solution}
            if satisfies(point, wanted):
                return point
    return None


def _keep(domain: NormalizedDomain, points: Iterable[Point]) -> None:
    known = {tuple(p.values()) for p in domain.points}
    for point in points:
        values = tuple(point.values())
        if values not in known and (not domain.facts or satisfies(point, domain.facts)):
            known.add(values)
            domain.points.append(point)


def _grid(box: Box) -> Iterator[Point]:
    base = box.origin()
    names, corner, upper = list(base), tuple(base.values()), tuple(box.upper[n] for n in base)
    for steps in _steps(len(names), WIDTHS.get(len(names), 1)):
        values = tuple(map(add, corner, steps))
        if all(map(le, values, upper)):
            yield dict(zip(names, values, strict=True))
    if len(names) > 4:
        yield from ({**base, n: base[n] + 1} for n in names if base[n] < box.upper[n])


def _far(box: Box) -> Iterator[Point]:
    """A few points far from the lower corner: what is true of small sizes alone shows there."""
    yield dict(box.upper)
    for size in FAR:
        yield {n: max(low, min(size, box.upper[n])) for n, low in box.lower.items()}


@lru_cache(maxsize=16)
def _steps(count: int, width: int) -> tuple[tuple[int, ...], ...]:
    """The points of a grid of `width` in `count` dimensions by distance from the origin."""
    return tuple(sorted(product(range(width), repeat=count), key=lambda p: (sum(p), p)))


def _spread(box: Box) -> Iterator[Point]:
    base = box.origin()
    yield {n: 0 if box.lower[n] <= 0 <= box.upper[n] else base[n] for n in box.lower}
    for name, low in box.lower.items():
        high = box.upper[name]
        for value in _landmarks(low, high):
            yield {**base, name: value}
            yield {n: value if n == name else min(b + 2, box.upper[n]) for n, b in base.items()}
    names = list(box.lower)
    if len(names) <= 4:
        for ends in product((False, True), repeat=len(names)):
            yield {n: box.upper[n] if end else box.lower[n] for n, end in zip(names, ends, strict=True)}
    else:
        yield dict(box.upper)
        yield from ({**box.upper, n: box.lower[n]} for n in names)
    for size in (2, 3, 5, 8, 16, 64, 1024, 2**16, 2**31):
        yield {n: max(box.lower[n], min(size, box.upper[n])) for n in names}


def _landmarks(low: int, high: int) -> list[int]:
    powers = [
        p + d for e in range(0, 64, 1 if high - low < 4096 else 3) for p in (1 << e,) for d in (-1, 0, 1)
    ]
    wanted = {low, low + 1, low + 2, low + 3, high, high - 1, *range(low, min(low + 12, high)), *powers}
    if low < 0:
        wanted |= {-v for v in powers}
    return sorted(v for v in wanted if low <= v <= high)


def _repair(
    point: Point, violated: list[Condition], conditions: Sequence[Condition], box: Box
) -> Point | None:
    """The point after the one move that leaves the fewest conditions violated."""
    best: Point | None = None
    fewest = len(violated)
    for relation in violated[0].relations:
        for name in sorted(relation.symbols):
            for value in _moves(relation, name, point, box):
                moved = {**point, name: value}
                left = sum(not satisfies(moved, (c,)) for c in conditions)
                if left < fewest or (best is None and satisfies(moved, (relation,))):
                    best, fewest = moved, min(left, fewest)
                    if not left:
                        return best
    return best


def _moves(relation: Relation, name: str, point: Point, box: Box) -> Iterator[int]:
    """Values of `name` where `relation` may begin to hold: a secant step over several strides."""
    here, low, high = point[name], box.lower[name], box.upper[name]
    try:
        value = relation.expr.evaluate(point)
    except ZeroDivisionError:
        yield from (v for v in (1, here + 1) if low <= v <= high)
        return
    if relation.operator == "!=":
        yield from (v for v in (here + 1, here - 1) if low <= v <= high)
        return
    tried = {here}
    for stride in (1, 16, 4096, 2**20, 2**40):
        step = stride if here + stride <= high else -stride
        if not low <= here + step <= high:
            continue
        slope = _at(relation, point, name, here + step)
        if slope is None or slope == value:
            continue
        ratio = (
            -value * step // (slope - value)
            if relation.operator == "=="
            else _ceil_away(value, step, slope - value)
        )
        for target in (here + ratio, here + ratio + (1 if ratio > 0 else -1)):
            target = max(low, min(high, target))
            if target not in tried:
                tried.add(target)
                yield target


def _at(relation: Relation, point: Point, name: str, value: int) -> int | None:
    try:
        return relation.expr.evaluate({**point, name: value})
    except ZeroDivisionError:
        return None


def _ceil_away(value: int, step: int, rise: int) -> int:
    """The least move (in size) that brings a line of slope `rise / step` from `value` down to zero or
    below.
    """
    amount = -value * step
    quotient = amount // rise
    return quotient if quotient * rise == amount or (quotient < 0) else quotient + 1
