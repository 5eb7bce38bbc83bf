"""One claim over one region, and the order in which the layers are asked about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from symalloc.prover.bounds import Box, decide
from symalloc.prover.budget import Budget
from symalloc.prover.operands import holds_by_operands
from symalloc.prover.refute import refute, refute_by_residues
from symalloc.prover.region import Region
from symalloc.prover.sampling import corner, first_points, more_points, search
from symalloc.prover.solver import Solver
from symalloc.prover.univariate import Exact, solve_exactly
from symalloc.prover.verdict import Proof, Verdict
from symalloc.size.condition import Condition
from symalloc.size.defined import fails, holds

__all__ = ["Inquiry", "Outcome", "decide_claim", "inhabited"]

Point = Mapping[str, int]
Refute = Callable[[Iterable[Condition], Box, Budget], str | None]


class Inquiry:
    """Whether `constraint` holds over `region`: in the region's terms, where it `holds` and where it `fails`.

    Both are defined at every point of the region.
    """

    __slots__ = ("_fails", "constraint", "holds", "region")

    def __init__(self, constraint: Condition, region: Region) -> None:
        self.constraint, self.region = constraint, region
        # obligations first: a substitution may fold the relation that they belong to
        self.holds = region.reduce(holds(constraint, region.positive))
        self._fails: Condition | None = None

    @property
    def fails(self) -> Condition:
        """Where the constraint does not hold, or is not defined."""
        if self._fails is None:
            self._fails = self.region.reduce(fails(self.constraint, self.region.positive))
        return self._fails


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A verdict before it is explained; points are in terms of the region."""

    verdict: Verdict
    decided_by: str
    counterexample: Point | None = None
    witness: Point | None = None
    reason: str | None = None
    exact: Exact | None = None
    failing: Sequence[Point] = field(default_factory=tuple)

    def unknown(self, reason: str) -> Outcome:
        """The same, turned into an undecided run-time check."""
        return replace(self, verdict=Verdict.RUNTIME_CHECK, reason=reason)

    def proof(self, region: Region) -> Proof:
        """The proof without further explanation."""
        return Proof(
            verdict=self.verdict,
            decided_by=self.decided_by,
            counterexample=None if self.counterexample is None else region.lift(self.counterexample),
            witness=None if self.witness is None else region.lift(self.witness),
            unknown=self.reason is not None,
            reason=self.reason,
        )


def inhabited(region: Region, solver: Solver) -> bool | None:
    """Whether the region has a point: True with one in `region.points`, False by proof, None where
    undecided.
    """
    if region.empty:
        return False
    if not region.facts or corner(region) or first_points(region) or more_points(region):
        return True
    if region.sampled < 3:
        region.sampled = 3
        if refute(region.facts, region.box, solver.budget) is not None:
            region.empty = True
            return False
        answer = solver.ask(region.facts, region.box)
        region.empty = answer.unsatisfiable
        if answer.point is not None:
            region.points.append(answer.point)
            return True
    return False if region.empty else None


def decide_claim(inquiry: Inquiry, solver: Solver, budget: Budget) -> Outcome:
    """The verdict of the first layer that has one; the region is taken to be inhabited."""
    return (
        _by_bounds(inquiry)
        or _by_solution_set(inquiry)
        or _by_refutation(inquiry, budget)
        or _by_operands(inquiry, budget)
        or _by_residues(inquiry, budget)
        or _by_searching(inquiry, budget)
        or _by_solver(inquiry, solver)
    )


def _by_bounds(inquiry: Inquiry) -> Outcome | None:
    value = inquiry.holds.as_bool
    layer = "bounds" if value is None else "constant"
    if value is None:
        value = decide(inquiry.holds, inquiry.region.box)
    if value is None:
        return None
    return Outcome(verdict=Verdict.ALWAYS_VALID if value else Verdict.ALWAYS_INVALID, decided_by=layer)


def _by_solution_set(inquiry: Inquiry) -> Outcome | None:
    exact = solve_exactly(inquiry.holds, inquiry.region)
    if exact is None:
        return None
    points = [
        None if value is None else {**inquiry.region.box.lower, exact.name: value}
        for value in (exact.least_outside(), exact.least_inside())
    ]
    return Outcome(
        verdict=_verdict(*points),
        decided_by="univariate",
        counterexample=points[0],
        witness=points[1],
        exact=exact,
    )


def _verdict(fails_at: Point | None, holds_at: Point | None) -> Verdict:
    if fails_at is None:
        return Verdict.ALWAYS_VALID
    return Verdict.ALWAYS_INVALID if holds_at is None else Verdict.RUNTIME_CHECK


def _by_refutation(inquiry: Inquiry, budget: Budget) -> Outcome | None:
    return _look_and_refute(inquiry, first_points(inquiry.region), refute, budget)


def _by_operands(inquiry: Inquiry, budget: Budget) -> Outcome | None:
    failing, witness = _classify(inquiry.holds, inquiry.region.points)
    if failing or not holds_by_operands(inquiry.holds, inquiry.region, budget):
        return None
    return Outcome(verdict=Verdict.ALWAYS_VALID, decided_by="operands", witness=witness)


def _by_residues(inquiry: Inquiry, budget: Budget) -> Outcome | None:
    return _look_and_refute(inquiry, more_points(inquiry.region), refute_by_residues, budget)


def _look_and_refute(
    inquiry: Inquiry, points: Sequence[Point], method: Refute, budget: Budget
) -> Outcome | None:
    """A run-time check where `points` show both sides; else a refutation of the side they do not show."""
    failing, witness = _classify(inquiry.holds, points)
    if failing and witness is not None:
        return _depends(failing, witness, "sampling")
    region = inquiry.region
    if not failing:
        layer = method((*region.facts, inquiry.fails), region.box, budget)
        if layer is not None:
            return Outcome(verdict=Verdict.ALWAYS_VALID, decided_by=layer, witness=witness)
    if witness is None:
        layer = method((*region.facts, inquiry.holds), region.box, budget)
        if layer is not None:
            return Outcome(verdict=Verdict.ALWAYS_INVALID, decided_by=layer, failing=failing)
    return None


def _by_searching(inquiry: Inquiry, budget: Budget) -> Outcome | None:
    region = inquiry.region
    failing, witness = _classify(inquiry.holds, region.points)
    if not failing:
        found = search(inquiry.fails, region, budget)
        failing = [] if found is None else [found]
    if witness is None:
        witness = search(inquiry.holds, region, budget)
    if failing and witness is not None:
        return _depends(failing, witness, "sampling")
    return None


def _by_solver(inquiry: Inquiry, solver: Solver) -> Outcome:
    region = inquiry.region
    failing, witness = _classify(inquiry.holds, region.points)
    if not failing:
        answer = solver.ask((*region.facts, inquiry.fails), region.box)
        if answer.unsatisfiable:
            return Outcome(verdict=Verdict.ALWAYS_VALID, decided_by="z3", witness=witness)
        failing = [] if answer.point is None else [answer.point]
    if witness is None:
        answer = solver.ask((*region.facts, inquiry.holds), region.box)
        if answer.unsatisfiable:
            return Outcome(verdict=Verdict.ALWAYS_INVALID, decided_by="z3", failing=failing)
        witness = answer.point
    if failing and witness is not None:
        return _depends(failing, witness, "z3")
    return _undecided(failing, witness)


def _undecided(failing: Sequence[Point], witness: Point | None) -> Outcome:
    missing = "fails" if not failing else "holds"
    if not failing and witness is None:
        missing = "holds or fails"
    return Outcome(
        verdict=Verdict.RUNTIME_CHECK,
        decided_by="none",
        witness=witness,
        failing=failing,
        counterexample=failing[0] if failing else None,
        reason=f"not decided within the budget: no point where it {missing} was found or ruled out",
    )


def _depends(failing: Sequence[Point], witness: Point, layer: str) -> Outcome:
    return Outcome(
        verdict=Verdict.RUNTIME_CHECK,
        decided_by=layer,
        failing=failing,
        counterexample=failing[0],
        witness=witness,
    )


def _classify(claim: Condition, points: Iterable[Point]) -> tuple[list[Point], Point | None]:
    """Points where `claim` fails, up to the first after a point where it holds; and that point."""
    failing: list[Point] = []
    witness: Point | None = None
    for point in points:
        if not claim.evaluate(point):
            failing.append(point)
        elif witness is None:
            witness = point
        if failing and witness is not None:
            break
    return failing, witness
