"""Layer `sampling`: points where a claim may hold or fail: a small joint grid, and a few far away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import product
from operator import add, le

from symalloc.prover.bounds import Box
from symalloc.prover.normalize import NormalizedDomain
from symalloc.size.condition import Condition

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
    if not domain.sampled:
        domain.sampled = True
        _keep(domain, _grid(domain.box))
        _keep(domain, _far(domain.box))
    return domain.points


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
