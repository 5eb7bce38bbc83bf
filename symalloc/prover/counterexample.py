"""The parts of a proof that a person reads: the smallest counterexample, the precondition, the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from symalloc.prover.budget import Budget
from symalloc.prover.precondition import precondition
from symalloc.prover.query import Query
from symalloc.prover.smallest import in_step, order, smallest
from symalloc.prover.solver import Solver
from symalloc.prover.verdict import Proof, Verdict
from symalloc.size.condition import TRUE


def explain_proof(query: Query, proof: Proof, solver: Solver, budget: Budget) -> Proof:
    """`proof` with its counterexample made as small as can be and a precondition looked for."""
    if proof.verdict is Verdict.ALWAYS_VALID:
        return proof
    point, proved = _smallest_counterexample(query, proof, solver, budget)
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
    query: Query, proof: Proof, solver: Solver, budget: Budget
) -> tuple[Mapping[str, int] | None, bool]:
    """The smallest point found, and True where it is proved smallest."""
    domain = query.domain
    known: list[Mapping[str, int]] = list(query.failing)
    if proof.counterexample is not None:
        if query.solutions is not None and in_step(domain):
            return proof.counterexample, True  # the least of an exact solution set
        known.append(proof.counterexample)
    if not known:
        return None, False
    least = min(known, key=lambda point: order(domain.to_domain(point)))
    fails = TRUE if proof.verdict is Verdict.ALWAYS_INVALID else query.fails
    solver.begin()
    return smallest(dict(least), fails, domain, solver, budget)
