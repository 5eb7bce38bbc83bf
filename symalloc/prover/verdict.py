"""Verdicts, and proofs: what the prover answers and what a finding holds.  Never a bool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from symalloc.prover.domain import Domain
from symalloc.shown import Shown
from symalloc.size.condition import Condition


class Verdict(StrEnum):
    """The standing of a constraint over a domain."""

    ALWAYS_VALID = "always-valid"  # holds at every point
    ALWAYS_INVALID = "always-invalid"  # the domain has points, and it holds at none
    RUNTIME_CHECK = "runtime-check"  # holds at some points and fails at others, or could not be decided
    VACUOUS = "vacuous"  # the assumptions contradict each other: the domain is empty


def counterexample_title(smallest: bool) -> str:
    """The name that a counterexample goes by, as far as it is proved that none is smaller."""
    return "counterexample" if smallest else "counterexample, perhaps not the smallest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(Shown):
    """The answer to one question.

    `domain`: the bounds and assumptions that the verdict was reached under; None where it needs none.
    `counterexample`: a point of the domain where the constraint fails, over the symbols that it has to do
    with (`Prover.complete` gives the others); None where it is always valid. `smallest`: it is proved that
    the constraint fails at no smaller point (`symalloc.prover.explanation.order`: by the largest value, then
    value by value in the order of names). `witness`: a point where it holds; None where always invalid.
    `precondition`: a readable condition proved equivalent to the constraint over the domain; None where none
    was found.
    `unknown`: whether a run-time check was chosen for want of a decision; `reason` says why, in words.
    `guarded`: a check at run time stops the program before the constraint could be broken; set by those who
    know the program.  `decided_by`: the layer (`constant`, `bounds`, …, `z3`); `seconds`: wall time.
    """

    verdict: Verdict
    decided_by: str
    domain: Domain | None = None
    counterexample: Mapping[str, int] | None = None
    smallest: bool = False
    witness: Mapping[str, int] | None = None
    precondition: Condition | None = None
    unknown: bool = False
    reason: str | None = None
    guarded: bool = False
    seconds: float = 0.0

    def facts(self, claim: str = "") -> Iterator[tuple[str, str]]:
        """Yield what a proof of `claim` tells besides its verdict, and the names of that, for a person."""
        points = {counterexample_title(self.smallest): self.counterexample, "holds at": self.witness}
        for name, point in points.items() if self.counterexample else ():
            if point:
                yield name, ", ".join(f"{symbol} = {value}" for symbol, value in point.items())
        if self.precondition is not None and str(self.precondition) != claim:
            yield "holds only when", str(self.precondition)
        if self.reason is not None:
            yield "unknown" if self.unknown else "note", self.reason
        took, tried = f"{1e3 * self.seconds:.1f} ms", self.decided_by == "none"
        yield ("tried for", took) if tried else ("decided by", f"{self.decided_by} in {took}")

    @property
    def holds(self) -> bool:
        """True where no point of the domain breaks the constraint: always valid, or vacuous."""
        return self.verdict in (Verdict.ALWAYS_VALID, Verdict.VACUOUS)
