"""What a person wants to know beside the verdict: the smallest counterexample, and when the claim does
hold.
"""

from __future__ import annotations

from collections.abc import Mapping

from symalloc.prover.inquiry import Inquiry, Outcome
from symalloc.prover.precondition import precondition
from symalloc.prover.sampling import corner, first_points, satisfies
from symalloc.prover.smallest import minimise_point
from symalloc.prover.verdict import Proof, Verdict
from symalloc.size.condition import Condition
from symalloc.size.defined import divisors

__all__ = ["explain_proof"]


def explain_proof(inquiry: Inquiry, outcome: Outcome) -> Proof:
    """The proof of `outcome` with its counterexample made small and a precondition looked for."""
    if outcome.verdict is Verdict.ALWAYS_VALID:
        return outcome.proof(inquiry.region)
    counterexample = _smallest(inquiry, outcome)
    undecided = outcome.reason is not None
    wanted = outcome.verdict is Verdict.RUNTIME_CHECK and not undecided
    return Proof(
        verdict=outcome.verdict,
        decided_by=outcome.decided_by,
        counterexample=counterexample,
        witness=None if outcome.witness is None else inquiry.region.lift(outcome.witness),
        precondition=precondition(inquiry, outcome.exact) if wanted else None,
        unknown=undecided,
        reason=outcome.reason or _undefined(inquiry.constraint, counterexample),
    )


def _undefined(constraint: Condition, point: Mapping[str, int] | None) -> str | None:
    """That a divisor is below 1 at `point`, in words."""
    if point is None or not (below := divisors(constraint)):
        return None
    for divisor in sorted(below, key=lambda d: (len(d.key), d.key)):
        try:
            value = divisor.evaluate(point)
        except ZeroDivisionError:
            continue
        if value < 1:
            return f"the divisor `{divisor}` can be {value}; a divisor must be at least 1"
    return None


def _smallest(inquiry: Inquiry, outcome: Outcome) -> dict[str, int] | None:
    region = inquiry.region
    if outcome.exact is not None:  # the least already
        return None if outcome.counterexample is None else region.lift(outcome.counterexample)
    failing = outcome.failing or [p for p in (outcome.counterexample,) if p is not None]
    if not failing and outcome.verdict is Verdict.ALWAYS_INVALID:
        failing = (corner(region) or first_points(region))[:8]
    point = minimise_point(
        failing,
        lambda p: region.box.holds(p) and satisfies(p, (*region.facts, inquiry.fails)),
        region.box.lower,
        steps=400,
    )
    return None if point is None else region.lift(point)
