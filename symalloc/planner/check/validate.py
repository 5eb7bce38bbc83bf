"""Validate a finished plan.  Shares only the prover with the packer: it reads only the plan's own ranges,
sizes and offsets.

What is asked (`symalloc.planner.check.obligations`), for all bindings of the domain: buffers that are live
together are disjoint, every tensor lies inside its arena, offsets are multiples of the alignment, and under
the guards nothing that is evaluated leaves 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from symalloc.planner.check.obligation_prover import ObligationProver
from symalloc.planner.check.obligations import ArenaObligations, Obligation
from symalloc.planner.memory_plan import Arena, Plan
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.size.condition import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFault:
    """One thing that is wrong with a plan, or could not be proved.

    `buffers` names the one or two buffers concerned; `binding` is a binding that breaks the plan, None
    where there is no such binding at hand because the proof, not the plan, fell short.
    """

    problem: str
    buffers: tuple[str, ...]
    constraint: Condition
    binding: Mapping[str, int] | None

    def __str__(self) -> str:
        where = ", ".join(f"`{name}`" for name in self.buffers) or "the arena"
        if self.binding is None:
            return f"{where}: {self.problem}: could not prove {self.constraint}"
        at = ", ".join(f"{name} = {value}" for name, value in sorted(self.binding.items())) or "every binding"
        return f"{where}: {self.problem} at {at}"


class PlanRefusedError(Exception):
    """A plan that does not validate; `faults` says what is wrong with it.

    Built from the text alone where it has crossed TVM's pass runner, which keeps nothing else:  `faults`
    is empty then.
    """

    def __init__(self, message: str, faults: tuple[PlanFault, ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults

    @classmethod
    def of(cls, function: str, faults: Sequence[PlanFault]) -> PlanRefusedError:
        """The refusal of the plan for `function`, naming the first of its faults that has a binding."""
        first = next((fault for fault in faults if fault.binding is not None), faults[0])
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        return cls(f"the plan for `{function}` is refused: {first}{more}", tuple(faults))


def validate(plan: Plan, domain: Domain, prover: Prover, *, machine: bool = True) -> tuple[PlanFault, ...]:
    """Return every fault of `plan` over `domain`; empty where all of it is proved.

    `machine` is that of `obligations`.
    """
    judge = ObligationProver.of(plan, domain, prover)
    return tuple(fault for arena in plan.arenas for fault in _arena_faults(arena, judge, machine))


def _arena_faults(arena: Arena, judge: ObligationProver, machine: bool) -> Iterator[PlanFault]:
    """The faults of an arena; all pairs are looked at only where those directly on each other do not do."""
    claims = ArenaObligations(arena)
    asked = claims.of_each(machine=machine, fits=lambda value: judge.fits(value, arena.defined_by))
    each = [fault for obligation in asked for fault in _faults(obligation, judge)]
    yield from each
    if each or not all(judge.sees(obligation) for obligation in claims.piled_up()):
        yield from (fault for obligation in claims.all_apart() for fault in _faults(obligation, judge))


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
