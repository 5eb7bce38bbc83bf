"""A question to the prover and its answer: the points that a constraint is asked about, limits on the work
that a proof may cost, verdicts and proofs.  A verdict is never a bool.

Below them layer `bounds`: interval arithmetic over a box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from symalloc.shown import Shown
from symalloc.size.choice import Choice, Max, Min
from symalloc.size.condition import And, Condition, Or, Relation
from symalloc.size.expr import Atom, Expr, FloorDiv, Mod, Symbol

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


Interval = tuple[int, int]


class Box:
    """Finite bounds for symbols; what refutation narrows as it goes.  `copy` before changing a shared one."""

    __slots__ = ("lower", "upper")

    def __init__(self, lower: Mapping[str, int], upper: Mapping[str, int]) -> None:
        self.lower = dict(lower)
        self.upper = dict(upper)

    def copy(self) -> Box:
        """An independent box with the same bounds."""
        return Box(self.lower, self.upper)

    def origin(self) -> dict[str, int]:
        """The point nearest to zero."""
        return {n: max(low, min(0, self.upper[n])) for n, low in self.lower.items()}

    def holds(self, point: Mapping[str, int]) -> bool:
        """True if every coordinate of `point` lies within its bounds."""
        return all(self.lower[n] <= v <= self.upper[n] for n, v in point.items())

    def quotients(self, name: str, step: int, residue: int) -> Interval:
        """The least and the greatest q with `step * q + residue` within the bounds of `name`."""
        return -((residue - self.lower[name]) // step), (self.upper[name] - residue) // step

    def narrow(self, name: str, least: int | None, greatest: int | None) -> bool:
        """Raise the lower or reduce the upper bound of `name`; False where nothing is left."""
        if least is not None and least > self.lower[name]:
            self.lower[name] = least
        if greatest is not None and greatest < self.upper[name]:
            self.upper[name] = greatest
        return self.lower[name] <= self.upper[name]


def interval(expr: Expr, box: Box) -> Interval:
    """Bounds of `expr` over `box`, term by term: sound, not always tight."""
    low = high = 0
    lower, upper = box.lower, box.upper
    for monomial, coefficient in expr.terms.items():
        a = b = 1
        for atom, power in monomial:
            if type(atom) is Symbol:
                x, y = lower[atom.name], upper[atom.name]
            else:
                x, y = _INTERVALS.get(type(atom), _hull)(atom, box)
            if power > 1:
                x, y = _power(x, y, power)
            if a >= 0 and x >= 0:
                a, b = a * x, b * y
            else:
                corners = (a * x, a * y, b * x, b * y)
                a, b = min(corners), max(corners)
        if coefficient >= 0:
            low, high = low + coefficient * a, high + coefficient * b
        else:
            low, high = low + coefficient * b, high + coefficient * a
    return low, high


def decide(condition: Condition, box: Box) -> bool | None:
    """The truth of `condition` everywhere in `box`, where intervals settle it."""
    if type(condition) is Relation:
        return _decide_interval(condition.operator, *interval(condition.expr, box))
    assert isinstance(condition, And | Or)
    absorbing = isinstance(condition, Or)
    open_ = False
    for part in condition.operands:
        value = decide(part, box)
        if value is absorbing:
            return absorbing
        open_ = open_ or value is None
    return None if open_ else not absorbing


def _decide_interval(operator: str, low: int, high: int) -> bool | None:
    if operator == "<=":
        return True if high <= 0 else False if low > 0 else None
    value = False if low > 0 or high < 0 else True if low == high == 0 else None
    return value if operator == "==" or value is None else not value


def _quotient(above: Interval, below: Interval) -> Interval:
    if below[0] < 1:
        size = max(abs(above[0]), abs(above[1]))  # |a // b| <= |a| for every b but zero
        return -size, size
    low = above[0] // (below[1] if above[0] >= 0 else below[0])
    return low, above[1] // (below[0] if above[1] >= 0 else below[1])


def _remainder(above: Interval, below: Interval) -> Interval:
    if below[0] < 1:
        return min(below[0] + 1, 0), max(below[1] - 1, 0)
    if above[0] >= 0:
        return above if above[1] < below[0] else (0, min(above[1], below[1] - 1))
    return 0, below[1] - 1


def _power(x: int, y: int, power: int) -> Interval:
    if x >= 0 or power % 2:
        return x**power, y**power
    return (0 if y >= 0 else y**power), max(x**power, y**power)


_INTERVALS: dict[type[Atom], Callable[[Any, Box], Interval]] = {
    FloorDiv: lambda atom, box: _quotient(interval(atom.numerator, box), interval(atom.denominator, box)),
    Mod: lambda atom, box: _remainder(interval(atom.numerator, box), interval(atom.denominator, box)),
    Min: lambda atom, box: _extremum(min, atom.parts, box),
    Max: lambda atom, box: _extremum(max, atom.parts, box),
}


def _extremum(pick: Callable[[Iterable[int]], int], operands: Iterable[Expr], box: Box) -> Interval:
    ranges = [interval(operand, box) for operand in operands]
    return pick(low for low, _ in ranges), pick(high for _, high in ranges)


def _hull(atom: Choice, box: Box) -> Interval:
    """The bounds of all values that a choice may have."""
    ranges = [interval(value, box) for _, value in atom.cases]
    return min(low for low, _ in ranges), max(high for _, high in ranges)
