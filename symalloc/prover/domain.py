"""A question to the prover and its answer: the points that a constraint is asked about, limits on the work
that a proof may cost, verdicts and proofs.  A verdict is never a bool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from symalloc.shown import Shown
from symalloc.size.condition import Condition

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Integers with `lower[s] <= s <= upper[s]` that satisfy every assumption.

    A symbol without an entry has the bounds `default_lower` and `default_upper`: by default those of a tensor
    dimension.
    """

    lower: Mapping[str, int] = field(default_factory=dict)
    upper: Mapping[str, int] = field(default_factory=dict)
    assumptions: tuple[Condition, ...] = ()
    default_lower: int = 0
    default_upper: int = INT64_MAX

    def lower_of(self, name: str) -> int:
        """The least value that `name` may take, assumptions aside."""
        return self.lower.get(name, self.default_lower)

    def upper_of(self, name: str) -> int:
        """The greatest value that `name` may take, assumptions aside."""
        return self.upper.get(name, self.default_upper)

    def assuming(self, conditions: Iterable[Condition]) -> Domain:
        """The domain with further assumptions; itself where there are none."""
        added = tuple(conditions)
        return replace(self, assumptions=(*self.assumptions, *added)) if added else self

    def contains(self, binding: Mapping[str, int]) -> bool:
        """True if `binding` (which must name every symbol of the assumptions) lies in the domain."""
        inside = all(self.lower_of(s) <= v <= self.upper_of(s) for s, v in binding.items())
        return inside and all(a.evaluate(binding) for a in self.assumptions)


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
    the constraint fails at no smaller point (`symalloc.prover.prover.order`: by the largest value, then
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one proof; a proof that reaches them is reported as unknown.

    `z3_steps`: resources that z3 may spend in vain on one proof (0: never ask), the same on every machine and
    under any load.  `sampling_steps`: points evaluated in search of a smaller one.  `cases`: branches of a
    case distinction.  `work`: machine-word operations of the exact simplex in one attempt at a refutation.
    """

    z3_steps: int = 100_000
    sampling_steps: int = 4_000
    cases: int = 96
    work: int = 80_000


GLANCE = Budget(z3_steps=5_000, sampling_steps=400, cases=12, work=6_000)
"""For what is of use only where it is settled soon."""


class Meter:
    """Counts down the elementary operations that one attempt at a proof has left."""

    __slots__ = ("left",)

    def __init__(self, work: int) -> None:
        self.left = work

    def spend(self, operations: int) -> bool:
        """Take `operations` away; whether any are left."""
        self.left -= operations
        return self.left > 0
