"""One constraint over one domain, and the order in which the layers are asked about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from symalloc.prover.bounds import Box, decide
from symalloc.prover.budget import Budget
from symalloc.prover.normalize import NormalizedDomain
from symalloc.prover.point_search import corner, first_points
from symalloc.prover.refute import refute
from symalloc.prover.solver import Solver
from symalloc.prover.univariate import SolutionSet, solve_exactly
from symalloc.prover.verdict import Proof, Verdict
from symalloc.size.condition import Condition
from symalloc.size.defined import fails, holds

Point = Mapping[str, int]
Ask = Callable[[Sequence[Condition], Box], str | Point | None]
"""Looks for a point of a box that satisfies all conditions, or a proof, by the layer it names, of none."""


class Query:
    """A question: does `constraint` hold over `domain`?

    `holds` and `fails` say in the domain's terms where it does and where it does not; both are defined at
    every point of the domain.  What the layers come across on their way to a verdict stays here:
    `solutions`, the exact solution set, `failing`, points where the constraint fails, and `witness`, a point
    where it holds.
    """

    __slots__ = ("_fails", "constraint", "domain", "failing", "holds", "solutions", "witness")

    def __init__(self, constraint: Condition, domain: NormalizedDomain) -> None:
        self.constraint, self.domain = constraint, domain
        # obligations first: a substitution may fold the relation that they belong to
        self.holds = domain.reduce(holds(constraint, domain.positive))
        self.solutions: SolutionSet | None = None
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
    if not domain.facts or corner(domain) or first_points(domain):
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
        or _by_solution_set(query)
        or _by_refutation(query, solver.budget)
        or _by_solver(query, solver)
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


def _by_solution_set(query: Query) -> Proof | None:
    solutions = query.solutions = solve_exactly(query.holds, query.domain)
    if solutions is None:
        return None
    outside, inside = (
        None if value is None else {**query.domain.box.origin(), solutions.name: value}
        for value in (solutions.least_outside(), solutions.least_inside())
    )
    verdict = Verdict.ALWAYS_INVALID if inside is None else Verdict.RUNTIME_CHECK
    if outside is None:
        verdict = Verdict.ALWAYS_VALID
    return Proof(verdict=verdict, decided_by="univariate", counterexample=outside, witness=inside)


def _by_refutation(query: Query, budget: Budget) -> Proof | None:
    return _by_asking(query, first_points(query.domain), lambda c, box: refute(c, box, budget))


def _by_solver(query: Query, solver: Solver) -> Proof | None:
    return _by_asking(query, query.domain.points, solver.ask, layer="z3")


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
