"""One constraint over one domain, and the order in which the layers are asked about it.

The points that show where a constraint holds and fails are a small joint grid, and a few far away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from operator import add, le

from symalloc.prover.domain import Box, Budget, Proof, Verdict, decide
from symalloc.prover.normalize import NormalizedDomain
from symalloc.prover.refute import refute
from symalloc.prover.smtlib import Solver
from symalloc.size.condition import Condition
from symalloc.size.defined import fails, holds

FAR = (64, 4096)
WIDTHS = {1: 9, 2: 4, 3: 3, 4: 2}
Point = Mapping[str, int]
Ask = Callable[[Sequence[Condition], Box], str | Point | None]
"""Looks for a point of a box that satisfies all conditions, or a proof, by the layer it names, of none."""


class Query:
    """A question: does `constraint` hold over `domain`?

    `holds` and `fails` say in the domain's terms where it does and where it does not; both are defined at
    every point of the domain.  What the layers come across on their way to a verdict stays here: `failing`,
    points where the constraint fails, and `witness`, a point where it holds.
    """

    __slots__ = ("_fails", "constraint", "domain", "failing", "holds", "witness")

    def __init__(self, constraint: Condition, domain: NormalizedDomain) -> None:
        self.constraint, self.domain = constraint, domain
        # obligations first: a substitution may fold the relation that they belong to
        self.holds = domain.reduce(holds(constraint, domain.positive))
        self.failing: Sequence[Point] = ()
        self.witness: Point | None = None
        self._fails: Condition | None = None

    @property
    def fails(self) -> Condition:
        """The condition that the constraint does not hold, or is not defined."""
        if self._fails is None:
            self._fails = self.domain.reduce(fails(self.constraint, self.domain.positive))
        return self._fails

    def classify(self, points: Iterable[Point]) -> None:
        """Set `witness` and `failing` from `points`, which are looked at until both sides were seen."""
        failing: list[Point] = []
        self.failing, self.witness = failing, None
        for point in points:
            if not self.holds.evaluate(point):
                failing.append(point)
            elif self.witness is None:
                self.witness = point
            if failing and self.witness is not None:
                break

    def proof(self, verdict: Verdict, layer: str) -> Proof:
        """The proof of `verdict` by `layer`, with the points found so far."""
        counterexample = self.failing[0] if self.failing and verdict is Verdict.RUNTIME_CHECK else None
        return Proof(verdict=verdict, decided_by=layer, counterexample=counterexample, witness=self.witness)


def undecided(proof: Proof, reason: str) -> Proof:
    """`proof` turned into a run-time check for want of a decision."""
    return replace(proof, verdict=Verdict.RUNTIME_CHECK, unknown=True, reason=reason)


def inhabited(domain: NormalizedDomain, solver: Solver) -> bool | None:
    """Tell whether the domain has a point: True with one in `domain.points`, False by proof, None where
    undecided.
    """
    if domain.empty:
        return False
    if not domain.facts or first_points(domain):
        return True
    if not domain.asked:
        domain.asked = True
        if refute(domain.facts, domain.box, solver.budget) is not None:
            domain.empty = True
            return False
        solver.begin()
        answer = solver.ask(domain.facts, domain.box)
        domain.empty = isinstance(answer, str)
        if isinstance(answer, dict):
            domain.points.append(answer)
            return True
    return False if domain.empty else None


def decide_query(query: Query, solver: Solver) -> Proof:
    """The verdict of the first layer that has one; the domain is taken to be inhabited."""
    return (
        _by_bounds(query)
        or _by_refutation(query, solver.budget)
        or _by_asking(query, query.domain.points, solver.ask, layer="z3")
        or _undecided(query)
    )


def _by_bounds(query: Query) -> Proof | None:
    value = query.holds.as_bool
    layer = "bounds" if value is None else "constant"
    if value is None:
        value = decide(query.holds, query.domain.box)
    if value is None:
        return None
    return query.proof(Verdict.ALWAYS_VALID if value else Verdict.ALWAYS_INVALID, layer)


def _by_refutation(query: Query, budget: Budget) -> Proof | None:
    return _by_asking(query, first_points(query.domain), lambda c, box: refute(c, box, budget))


def _by_asking(query: Query, points: Iterable[Point], ask: Ask, *, layer: str = "sampling") -> Proof | None:
    """The verdict, where `points` and `ask` show or rule out that the constraint holds, and that it fails.

    `ask` is asked about the sides that `points` do not show; `layer` is the one that its points come from.
    """
    facts, box = query.domain.facts, query.domain.box
    query.classify(points)
    if query.failing and query.witness is not None:
        return query.proof(Verdict.RUNTIME_CHECK, "sampling")
    if not query.failing:
        answer = ask((*facts, query.fails), box)
        if isinstance(answer, str):
            return query.proof(Verdict.ALWAYS_VALID, answer)
        query.failing = () if answer is None else (answer,)
    if query.witness is None:
        answer = ask((*facts, query.holds), box)
        if isinstance(answer, str):
            return query.proof(Verdict.ALWAYS_INVALID, answer)
        query.witness = answer
    if query.failing and query.witness is not None:
        return query.proof(Verdict.RUNTIME_CHECK, layer)
    return None


def _undecided(query: Query) -> Proof:
    missing = "holds" if query.failing else "fails" if query.witness is not None else "holds or fails"
    reason = f"not decided within the budget: no point where it {missing} was found or ruled out"
    return undecided(query.proof(Verdict.RUNTIME_CHECK, "none"), reason)


def satisfies(point: Mapping[str, int], conditions: Iterable[Condition]) -> bool:
    """True if every condition holds at `point`; one with a divisor of zero does not."""
    try:
        for condition in conditions:  # a loop: a generator costs a third more, and this is where sampling is
            if not condition.evaluate(point):
                return False
    except ZeroDivisionError:
        return False
    return True


def first_points(domain: NormalizedDomain) -> list[dict[str, int]]:
    """A few points of the domain, most near its lower corner, those first; computed once."""
    if not domain.sampled:
        domain.sampled = True
        _keep(domain, _grid(domain.box))
        _keep(domain, _far(domain.box))
    return domain.points


def _keep(domain: NormalizedDomain, points: Iterable[dict[str, int]]) -> None:
    known = {tuple(p.values()) for p in domain.points}
    for point in points:
        values = tuple(point.values())
        if values not in known and (not domain.facts or satisfies(point, domain.facts)):
            known.add(values)
            domain.points.append(point)


def _grid(box: Box) -> Iterator[dict[str, int]]:
    base = box.origin()
    names, corner, upper = list(base), tuple(base.values()), tuple(box.upper[n] for n in base)
    for steps in _steps(len(names), WIDTHS.get(len(names), 1)):
        values = tuple(map(add, corner, steps))
        if all(map(le, values, upper)):
            yield dict(zip(names, values, strict=True))
    if len(names) > 4:
        yield from ({**base, n: base[n] + 1} for n in names if base[n] < box.upper[n])


def _far(box: Box) -> Iterator[dict[str, int]]:
    """A few points far from the lower corner: what is true of small sizes alone shows there."""
    yield dict(box.upper)
    for size in FAR:
        yield {n: max(low, min(size, box.upper[n])) for n, low in box.lower.items()}


@lru_cache(maxsize=16)
def _steps(count: int, width: int) -> tuple[tuple[int, ...], ...]:
    """The points of a grid of `width` in `count` dimensions by distance from the origin."""
    return tuple(sorted(product(range(width), repeat=count), key=lambda p: (sum(p), p)))
