"""Judges a finished plan.  Shares no code with the packer: it reads only the plan's own ranges, sizes and
offsets.

What is asked (`symalloc.plan.obligations`), for all bindings of the domain: buffers that are live together
are disjoint, every tensor lies inside its arena, offsets are multiples of the alignment, and under the
guards nothing that is evaluated leaves 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from symalloc.plan.fault import Fault, PlanRefusedError
from symalloc.plan.model import Plan
from symalloc.plan.obligations import Obligation, Side, obligations, operands
from symalloc.plan.sight import Sight, alternatives, candidates
from symalloc.program.model import Var
from symalloc.prove.domain import Domain
from symalloc.prove.prover import Prover
from symalloc.prove.verdict import Proof, Verdict
from symalloc.size.atoms import Atom, Select
from symalloc.size.condition import Condition, disjunction, le, negate
from symalloc.size.defined import divisors
from symalloc.size.expr import Expr
from symalloc.size.rewrite import rewrite

__all__ = ["Fault", "Judge", "PlanRefusedError", "validate"]

MOST_REGIMES = 5  # nested choices that are taken apart here; what is left goes to the prover whole


def validate(plan: Plan, domain: Domain, prover: Prover, *, machine: bool = True) -> tuple[Fault, ...]:
    """Every fault of `plan` over `domain`; empty where all of it is proved.

    Without `machine` the plan is one over the integers: whether 64 bits hold its values is not asked.
    """
    judge = Judge.of(plan, domain, prover)
    asked = (o for o in obligations(plan) if machine or not o.guarded)
    return tuple(fault for obligation in asked for fault in judge.faults(obligation))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Proves the obligations of `plan`, those of arithmetic under the guards that stand before it.

    The plan's representative binding tells which of two orders to try first; nothing rests on it.
    """

    plan: Plan
    domain: Domain
    prover: Prover
    sight: Sight
    assumed: dict[tuple[int, str], tuple[Domain, Domain]] = field(default_factory=dict)
    guarded: dict[Var | None, Domain] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, domain: Domain, prover: Prover) -> Judge:
        """The judge of `plan` over `domain`."""
        return cls(plan=plan, domain=domain, prover=prover, sight=Sight(domain))

    def faults(self, obligation: Obligation) -> Iterator[Fault]:
        """A fault for everything that an obligation which is not proved speaks of."""
        proof = self.proof(obligation)
        if proof.verdict is Verdict.ALWAYS_VALID:
            return
        claim = obligation.claim
        for names in obligation.where:
            yield Fault(
                problem=obligation.problem, buffers=names, constraint=claim, binding=proof.counterexample
            )

    def proof(self, obligation: Obligation) -> Proof:
        """The proof of `obligation`; with the smallest counterexample found where it does not hold."""
        domain = self.domain_of(obligation)
        if self.settled(obligation.sides, domain, MOST_REGIMES):
            return Proof(verdict=Verdict.ALWAYS_VALID, decided_by="validator")
        proof = self.prover.prove(obligation.claim, domain)
        return replace(proof, verdict=Verdict.ALWAYS_VALID) if proof.verdict is Verdict.VACUOUS else proof

    def domain_of(self, obligation: Obligation) -> Domain:
        """Where `obligation` must hold."""
        if not obligation.guarded:
            return self.domain
        found = self.guarded.get(obligation.after)
        if found is None:
            guards = (g.condition for g in self.plan.guards if g.after in (None, obligation.after))
            found = self.guarded[obligation.after] = self.domain.assuming(guards)
        return found

    def settled(self, sides: tuple[Side, ...], domain: Domain, splits: int) -> bool:
        """Whether one of `sides` holds throughout, choices between regimes taken one by one."""
        if any(self.sight.at_most(low, high) for low, high in sides):
            return True
        choice = next((c for side in sides for expr in side if (c := _regime(expr)) is not None), None)
        if choice is not None and splits:
            return all(
                self.settled(_chosen(sides, choice.condition, value), case, splits - 1)
                for value, case in zip((True, False), self.cases(choice.condition, domain), strict=True)
            )
        if choice is not None:
            return False
        ordered = sorted(sides, key=self.likeliness)
        if any(self.at_most(low, high, domain) for low, high in ordered):
            return True
        return len(sides) > 1 and self.proved(disjunction(le(low, high) for low, high in sides), domain)

    def cases(self, condition: Condition, domain: Domain) -> tuple[Domain, Domain]:
        """`domain` where `condition` holds, and where it does not."""
        key = (id(domain), condition.key)
        found = self.assumed.get(key)
        if found is None:
            found = domain.assuming((condition,)), domain.assuming((negate(condition),))
            self.assumed[key] = found
        return found

    def likeliness(self, side: Side) -> bool:
        """False, which sorts first, where the side holds at the hint, or nothing is known."""
        try:
            return side[0].evaluate(self.plan.representative) > side[1].evaluate(self.plan.representative)
        except (KeyError, ZeroDivisionError):
            return False

    def at_most(self, low: Expr, high: Expr, domain: Domain) -> bool:
        """Whether `low <= high` is proved; maxima are taken apart, so that most questions are about
        polynomials.
        """
        highs = alternatives(high)
        return all(any(self.proved(le(a, b), domain) for b in highs) for a in candidates(low))

    def proved(self, condition: Condition, domain: Domain) -> bool:
        verdict = self.prover.prove(condition, domain, explain=False).verdict
        return verdict in (Verdict.ALWAYS_VALID, Verdict.VACUOUS)


def _chosen(sides: tuple[Side, ...], condition: Condition, value: bool) -> tuple[Side, ...]:
    """`sides` where `condition` is known to be `value`: every choice by it is replaced by what it chooses."""

    def change(atom: Atom) -> Expr | None:
        if not isinstance(atom, Select) or atom.condition != condition:
            return None
        return atom.then if value else atom.otherwise

    return tuple((rewrite(low, change), rewrite(high, change)) for low, high in sides)


def _regime(expr: Expr) -> Select | None:
    """An outermost choice in `expr` whose condition is defined at every point."""
    if expr.is_polynomial:
        return None
    for atom in sorted(expr.atoms):
        if isinstance(atom, Select) and not divisors(atom.condition):
            return atom
        found = next((c for e in operands(atom) if (c := _regime(e)) is not None), None)
        if found is not None:
            return found
    return None
