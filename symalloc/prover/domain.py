"""A question to the prover and its answer: the points that a constraint is asked about, limits on the work
that a proof may cost, verdicts and proofs.  A verdict is never a bool.

Below them what is decided without a search: layer `bounds`, interval arithmetic over a box, and inequalities
that can be seen to hold, for every term of the difference is at least zero.  A module's thousands of
questions so cost microseconds each.  Where terms alone do not show it, quotients are replaced by the bounds
that rounding leaves them; a difference of sizes is a multiple of what divides all its coefficients, so that
more than that below zero is below zero.  What cannot be seen goes to the prover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from math import gcd, inf, lcm
from typing import Any

from symalloc.shown import Shown
from symalloc.size.choice import Choice, Max, Min, Signs
from symalloc.size.condition import And, Condition, Or, Relation
from symalloc.size.expr import Atom, Expr, FloorDiv, Mod, Monomial, Symbol

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


MOST_ALTERNATIVES = 256
MOST_NESTED = 3  # quotients within each other that are replaced by their bounds


class SyntacticOrder:
    """Remembers which atoms are never negative over the bounds of `domain`; its assumptions are not used.

    `compared` counts the differences that were looked at closely; beyond `most` of them only terms are.
    """

    __slots__ = ("_domain", "_most", "compared", "signs")

    def __init__(self, domain: Domain, most: float = inf) -> None:
        self._domain, self._most = domain, most
        self.compared = 0
        self.signs = Signs(lambda name: domain.lower_of(name) >= 0)

    def at_most(self, low: Expr, high: Expr) -> bool:
        """Return whether `low <= high` is seen to hold at every point; False says nothing."""
        if self._terms_at_most(low.terms, high.terms):
            return True
        if self.compared > self._most:
            return False
        nodes, _, known = _expanded(high)
        if any(self._terms_at_most(low.terms, node.terms) for node in nodes[1:]):
            return True
        parts, simplest_first = candidates(low), nodes[::-1]
        if all(part in known or self._below(part, simplest_first) for part in parts):
            return True
        return len(parts) > 1 and any(self._roughly_at_most(low, node) for node in simplest_first)

    def _below(self, low: Expr, nodes: Sequence[Expr]) -> bool:
        """Return whether one of `nodes` is seen to be at least `low`."""
        if any(self._terms_at_most(low.terms, node.terms) for node in nodes):
            return True
        return any(self._roughly_at_most(low, node) for node in nodes)

    def _terms_at_most(self, low: Mapping[Monomial, int], high: Mapping[Monomial, int]) -> bool:
        """Return whether each term of `high - low` is >= 0."""
        seen = self.signs.monomial
        for monomial, coefficient in low.items():
            rest = high.get(monomial, 0) - coefficient
            if rest < 0 or (rest and not seen(monomial)):
                return False
        for monomial, coefficient in high.items():
            if monomial not in low and (coefficient < 0 or not seen(monomial)):
                return False
        return True

    def _roughly_at_most(self, low: Expr, high: Expr) -> bool:
        """The same once quotients in the difference are replaced by the bounds that rounding leaves them."""
        self.compared += 1
        if self.compared > self._most:
            return False
        difference = high - low
        grain = gcd(*difference.terms.values()) or 1
        least, scale = _without_quotients(difference)
        return self.signs.expr(least + (scale * grain - 1))


def alternatives(expr: Expr) -> tuple[Expr, ...]:
    """Expressions whose maximum is `expr`: its other terms are added to each operand of a maximum in it."""
    return _expanded(expr)[1]


def _without_quotients(expr: Expr) -> tuple[Expr, int]:
    """`(p, d)` with p <= d * expr, where each `a // c` that is subtracted became its bound a / c, and each
    that is added its bound (a - c + 1) / c.
    """
    scale = 1
    for _ in range(MOST_NESTED):
        quotients = {m: q for m in expr.terms if (q := _divided(m))}
        if not quotients:
            break
        step = lcm(*(divisor for _, divisor in quotients.values()))
        total: dict[Monomial, int] = {}
        for monomial, coefficient in expr.terms.items():
            above, divisor = quotients.get(monomial, (None, 1))
            share = coefficient * (step // divisor)
            terms = {monomial: 1} if above is None else above.terms
            for key, value in terms.items():
                total[key] = total.get(key, 0) + share * value
            if above is not None and share > 0:
                total[()] = total.get((), 0) - share * (divisor - 1)
        scale *= step
        expr = Expr({m: c for m, c in total.items() if c})
    return expr, scale


def _divided(monomial: Monomial) -> tuple[Expr, int] | None:
    """The numerator and the divisor, where a monomial is a quotient by a positive constant."""
    if len(monomial) != 1 or monomial[0][1] != 1 or not isinstance(monomial[0][0], FloorDiv):
        return None
    divisor = monomial[0][0].denominator.as_constant or 0
    return (monomial[0][0].numerator, divisor) if divisor > 0 else None


@lru_cache(maxsize=8192)
def _expanded(expr: Expr) -> tuple[tuple[Expr, ...], tuple[Expr, ...], frozenset[Expr]]:
    """`expr` with the expressions that its maxima lead to, none of which exceeds it; the last of them; and
    all of them as a set.
    """
    if expr.is_polynomial:
        return (expr,), (expr,), frozenset((expr,))
    nodes, last = [expr], []
    for node in nodes:  # which grows as it is walked
        found = _spread(node) if len(nodes) <= MOST_ALTERNATIVES else ()
        nodes += found
        if not found:
            last.append(node)
    return tuple(nodes), tuple(last), frozenset(nodes)


def candidates(expr: Expr) -> tuple[Expr, ...]:
    """Expressions of which one is `expr` at every point: its alternatives, or remainders of alternatives."""
    if len(expr.terms) == 1:
        ((monomial, coefficient),) = expr.terms.items()
        atom = monomial[0][0] if len(monomial) == 1 and monomial[0][1] == 1 else None
        if isinstance(atom, Mod):
            return tuple(coefficient * (e % atom.denominator) for e in alternatives(atom.numerator))
    return alternatives(expr)


def _spread(expr: Expr) -> tuple[Expr, ...]:
    """The alternatives by one maximum with a positive coefficient; none where there is no such maximum."""
    for monomial, coefficient in expr.terms.items():
        if coefficient > 0 and len(monomial) == 1 and monomial[0][1] == 1:
            atom = monomial[0][0]
            if isinstance(atom, Max):
                rest = expr - Expr({monomial: coefficient})
                return tuple(rest + coefficient * operand for operand in atom.operands)
    return ()
