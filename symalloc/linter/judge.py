"""From a constraint at a site to a verdict: which domain to ask over, in which order.

A verdict is sought with as few facts as possible: first what holds on entry, then what asserts, casts and
tests say, then what kernels checked.  So a definite verdict does not hang on a check that is itself at
fault, and the report can say which constraints hold only thanks to a check at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from symalloc.analysis.facts import Facts
from symalloc.linter.domains import Domains, non_empty
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Proof, Verdict
from symalloc.size.condition import FALSE, Condition
from symalloc.size.expr import Expr

__all__ = ["Judge", "Judgement", "Ruling"]


class Ruling(NamedTuple):
    """A verdict, and whether it took a check at run time (`guarded`).

    `domain` is what it was reached over, None for a constraint without symbols.
    """

    verdict: Verdict
    guarded: bool = False
    domain: Domain | None = None
    unknown: bool = False


_VALID = Ruling(Verdict.ALWAYS_VALID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A ruling that is no `always-valid`, explained.

    `counterexample` has extents of at least 1 where there is such a one.  `empty`: a point with an empty
    tensor at which a constraint holds that no other point satisfies.  `needs_empty`: no point without an
    empty tensor breaks it.
    """

    verdict: Verdict
    proof: Proof
    counterexample: dict[str, int] | None = None
    empty: dict[str, int] | None = None
    needs_empty: bool = False


class Judge:
    """Rules on the constraints of one function."""

    def __init__(self, prover: Prover, domains: Domains) -> None:
        self.prover, self.domains = prover, domains

    def rule(
        self, constraint: Condition, facts: Facts, *, sized: bool = False, divisors: tuple[Expr, ...] = ()
    ) -> Ruling:
        """The verdict on `constraint` where `facts` are known.

        `divisors` are taken to be at least 1: the program stops at a division by 0 before anything else goes
        wrong, and that a divisor can be 0 is a finding of its own.
        """
        value = constraint.as_bool
        if value is True:
            return _VALID
        domain = self.domains.entry(sized=sized, divisors=divisors)
        verdict, unknown = self._ask(constraint, domain)
        if sized and verdict is Verdict.VACUOUS:
            return self.rule(
                constraint, facts, divisors=divisors
            )  # what is given asks for inputs that are not ordinary
        if verdict in _SETTLED:
            return _VALID
        if facts.guards:
            domain = self.domains.guarded(facts, sized=sized, divisors=divisors)
            verdict, unknown = self._ask(constraint, domain)
            if sized and verdict is Verdict.VACUOUS:
                return self.rule(constraint, facts, divisors=divisors)
            if verdict in _SETTLED:
                return Ruling(Verdict.ALWAYS_VALID, verdict is Verdict.ALWAYS_VALID, domain)
        if facts.calls and verdict is not Verdict.ALWAYS_INVALID:
            full = self.domains.full(facts, sized=sized, divisors=divisors)
            found, unsure = self._ask(constraint, full)
            if found is Verdict.ALWAYS_VALID:
                return Ruling(Verdict.ALWAYS_VALID, True, full)
            if found is not Verdict.VACUOUS:
                return Ruling(found, False, full, unsure)
        return Ruling(verdict, False, domain, unknown)

    def _ask(self, constraint: Condition, domain: Domain) -> tuple[Verdict, bool]:
        proof = self.prover.prove(constraint, domain, explain=False)
        return proof.verdict, proof.unknown

    def possible(self, facts: Facts) -> bool:
        """Whether control can get to where `facts` hold; True where that is not known."""
        if not facts.guards:
            return True
        domain = self.domains.guarded(facts, sized=False)
        return self.prover.prove(FALSE, domain, explain=False).verdict is not Verdict.VACUOUS

    def explain(self, constraint: Condition, domain: Domain) -> Judgement:
        """Why `constraint` does not always hold over `domain`.

        A constraint that no non-empty shape satisfies is `always-invalid` here.
        """
        proof = self.prover.prove(constraint, domain)
        if proof.verdict is not Verdict.RUNTIME_CHECK:
            return Judgement(verdict=proof.verdict, proof=proof, counterexample=_point(proof.counterexample))
        inner = self.prover.prove(constraint, non_empty(domain))
        if inner.verdict is Verdict.ALWAYS_INVALID:
            return Judgement(
                verdict=Verdict.ALWAYS_INVALID,
                proof=inner,
                counterexample=_point(inner.counterexample),
                empty=_point(proof.witness),
            )
        counterexample = inner.counterexample or proof.counterexample
        return Judgement(
            verdict=proof.verdict,
            proof=proof,
            counterexample=_point(counterexample),
            needs_empty=inner.verdict in _SETTLED,
        )

    def needs_declared(self, constraint: Condition, domain: Domain) -> tuple[str, ...]:
        """The symbols whose declared bounds make `constraint` hold: one where one will do; none where
        they do not.
        """
        names = [name for name in self.domains.bounded if name in constraint.symbols]
        for candidate in [*((name,) for name in names), tuple(names)] if names else []:
            bounded = self.domains.declared(domain, candidate)
            if self._ask(constraint, bounded)[0] is Verdict.ALWAYS_VALID:
                return candidate
        return ()


_SETTLED = (Verdict.ALWAYS_VALID, Verdict.VACUOUS)


def _point(binding: Mapping[str, int] | None) -> dict[str, int] | None:
    return dict(binding) if binding else None
