"""Validate a finished plan.  Shares no code with the packer: it reads only the plan's own ranges, sizes and
offsets.

What is asked (`symalloc.planner.check.obligations`), for all bindings of the domain: buffers that are live
together are disjoint, every tensor lies inside its arena, offsets are multiples of the alignment, and under
the guards nothing that is evaluated leaves 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.planner.check.obligation_prover import ObligationProver
from symalloc.planner.check.obligations import Obligation, obligations
from symalloc.planner.check.plan_fault import PlanFault
from symalloc.planner.memory_plan import Plan
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict


def validate(plan: Plan, domain: Domain, prover: Prover, *, machine: bool = True) -> tuple[PlanFault, ...]:
    """Return every fault of `plan` over `domain`; empty where all of it is proved.

    `machine` is that of `obligations`.
    """
    judge = ObligationProver.of(plan, domain, prover)
    asked = obligations(plan, machine=machine)
    return tuple(fault for obligation in asked for fault in _faults(obligation, judge))


def _faults(obligation: Obligation, judge: ObligationProver) -> Iterator[PlanFault]:
    """A fault for everything that an obligation which is not proved speaks of."""
    proof = judge.proof(obligation)
    if proof.verdict is Verdict.ALWAYS_VALID:
        return
    claim = obligation.claim
    for names in obligation.where:
        yield PlanFault(
            problem=obligation.problem, buffers=names, constraint=claim, binding=proof.counterexample
        )
