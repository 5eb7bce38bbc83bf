"""What a person wants to know beside the verdict: the smallest counterexample, and when the claim does hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from symalloc.prove.domain import Domain
from symalloc.prove.inquiry import Inquiry, Outcome
from symalloc.prove.sampling import satisfies
from symalloc.prove.smallest import minimise_point
from symalloc.prove.verdict import Proof, Verdict

if TYPE_CHECKING:
    from symalloc.prove.prover import Prover

__all__ = ["explain_proof"]


def explain_proof(prover: Prover, inquiry: Inquiry, outcome: Outcome, domain: Domain) -> Proof:
    """The proof of `outcome` with its counterexample made small and a precondition looked for."""
    proof = outcome.proof(inquiry.region)
    if outcome.verdict is Verdict.ALWAYS_VALID:
        return proof
    return replace(proof, counterexample=_smallest(inquiry, outcome))


def _smallest(inquiry: Inquiry, outcome: Outcome) -> dict[str, int] | None:
    region = inquiry.region
    failing = outcome.failing or [p for p in (outcome.counterexample,) if p is not None]
    if not failing and outcome.verdict is Verdict.ALWAYS_INVALID:
        failing = region.points
    point = minimise_point(
        failing,
        lambda p: satisfies(p, (*region.facts, inquiry.fails)),
        region.box.lower,
        steps=400,
    )
    return None if point is None else region.lift(point)
