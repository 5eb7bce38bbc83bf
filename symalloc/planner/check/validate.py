"""Validate a finished plan.  Shares only the prover with the packer: it reads only the plan's own ranges,
sizes and offsets.

What is asked (`symalloc.planner.check.obligations`), for all bindings of the domain: buffers that are live
together are disjoint, every tensor lies inside its arena, offsets are multiples of the alignment, and under
the guards nothing that is evaluated leaves 64 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from symalloc.planner.check.obligation_prover import ObligationProver
from symalloc.planner.check.obligations import ArenaObligations, Obligation
from symalloc.planner.memory_plan import Arena, Plan
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr


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
    offsets = [kind.offset for kind in claims.kinds]
    within = judge.within(arena.size, offsets, arena.defined_by) if machine else frozenset()

    def fits(value: Expr) -> bool:
        return value in within or judge.fits(value, arena.defined_by)

    def each(inside: Collection[int]) -> list[PlanFault]:
        asked = claims.of_each(machine=machine, fits=fits, inside=inside)
        return [fault for obligation in asked for fault in _faults(obligation, judge)]

    pairs = list(claims.piled_up())
    seen = [pair for pair, _ in takewhile(lambda piled: judge.sees(piled[1]), pairs)]
    carried = _carried(seen, len(claims.kinds))
    found = each(carried)
    if found and carried:
        found = each(())  # all that is wrong is named
    yield from found
    if found or len(seen) < len(pairs):
        yield from (fault for obligation in claims.all_apart() for fault in _faults(obligation, judge))


def _carried(piled: Iterable[tuple[int, int]], count: int) -> frozenset[int]:
    """The classes, of `count`, each of which ends below another that lies in the arena, if the rest do.

    It is one of the pairs `piled`, of which the lower one is seen to end below the upper one.  Those below
    each other, which only tensors without bytes are, are in none.
    """
    below: dict[int, list[int]] = {}
    for lower, upper in piled:
        below.setdefault(upper, []).append(lower)
    carried = {lower for lower, _ in piled}
    pending = [number for number in range(count) if number not in carried]
    reached = set(pending)
    for upper in pending:  # which grows as it is walked
        found = [lower for lower in below.get(upper, ()) if lower not in reached]
        reached.update(found)
        pending += found
    return frozenset(carried & reached)


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
