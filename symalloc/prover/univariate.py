"""Layer `univariate`: exact integer solution sets of conditions in one symbol.

A polynomial is monotone between sign changes of its forward difference, which has a lower degree; so the
set where it is at most zero is found by recursion and bisection, in integers throughout.  Quotients and
remainders by constants vanish once the symbol is written `period * q + residue`, one residue at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import lcm

from symalloc.prover.normalize import NormalizedDomain, periods, split_extrema
from symalloc.size.condition import And, Condition, Or, Relation, conjunction
from symalloc.size.expr import Expr, degree, symbol

Intervals = list[tuple[int, int]]
MAX_PERIOD = 64


def solve(
    condition: Condition, lower: int, upper: int, *, step: int = 1, residue: int = 0
) -> Intervals | None:
    """The q in [lower, upper] for which `condition`, in one symbol, holds at `step * q + residue`.

    Intervals disjoint, ascending, not adjacent; None where that is no polynomial of moderate degree.
    """
    if isinstance(condition, Relation):
        found = coefficients(condition.expr, step, residue)
        return None if found is None else _relation(condition.operator, found, lower, upper)
    assert isinstance(condition, And | Or)
    parts = []
    for operand in condition.operands:
        part = solve(operand, lower, upper, step=step, residue=residue)
        if part is None:
            return None
        parts.append(part)
    if isinstance(condition, Or):
        return merge(span for part in parts for span in part)
    whole: Intervals = [(lower, upper)]
    for part in parts:
        whole = intersect(whole, part)
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionSet:
    """The points where a claim in `name` alone holds and fails.

    For each residue modulo `step`: intervals of the quotient.
    """

    name: str
    step: int
    inside: tuple[tuple[int, Intervals], ...]
    outside: tuple[tuple[int, Intervals], ...]

    def least_inside(self) -> int | None:
        """The solution nearest to zero."""
        return self._least(self.inside)

    def least_outside(self) -> int | None:
        """The point of the domain nearest to zero that is no solution."""
        return self._least(self.outside)

    def _least(self, classes: Iterable[tuple[int, Intervals]]) -> int | None:
        values = [
            self.step * q + residue
            for residue, spans in classes
            for first, last in spans
            for q in ((first,) if first >= 0 else (last,) if last < 0 else (-1, 0))
        ]
        return min(values, key=lambda v: (abs(v), v), default=None)


def solve_exactly(holds: Condition, domain: NormalizedDomain, step: int = 1) -> SolutionSet | None:
    """The solution set of a claim whose symbols, and those of the facts, are one; its step is a multiple of
    `step`.
    """
    names = holds.symbols.union(*(f.symbols for f in domain.facts)) if domain.facts else holds.symbols
    if len(names) != 1:
        return None
    (name,) = names
    given = split_extrema(conjunction(domain.facts), limit=16)
    claim = split_extrema(holds, limit=16)
    step = lcm(step, periods((given, claim)).get(name, 1))
    if step > MAX_PERIOD:
        return None
    inside: list[tuple[int, Intervals]] = []
    outside: list[tuple[int, Intervals]] = []
    for residue in range(step):
        least, greatest = domain.box.quotients(name, step, residue)
        if least > greatest:
            continue
        taken = solve(claim, least, greatest, step=step, residue=residue)
        if taken is None:
            return None
        left = complement(taken, least, greatest)
        if domain.facts:
            whole = solve(given, least, greatest, step=step, residue=residue)
            if whole is None:
                return None
            taken, left = intersect(whole, taken), intersect(whole, left)
        inside.append((residue, taken))
        outside.append((residue, left))
    return SolutionSet(name=name, step=step, inside=tuple(inside), outside=tuple(outside))


def nonpositive(polynomial: Sequence[int], lower: int, upper: int) -> Intervals:
    """The integers x in [lower, upper] with `sum(c * x**i) <= 0`, as disjoint ascending intervals.

    `polynomial` lists the coefficients by power, the last not zero.
    """
    if lower > upper:
        return []
    if len(polynomial) <= 1:
        return [(lower, upper)] if not polynomial or polynomial[0] <= 0 else []
    falling = nonpositive(_difference(polynomial), lower, upper - 1)
    turns = {lower, upper}
    for first, last in falling:
        turns |= {first, last + 1}
    found: Intervals = []
    for a, b in pairwise(sorted(turns)):
        span = _monotone(polynomial, a, b)
        if span is not None:
            found.append(span)
    if lower == upper and _value(polynomial, lower) <= 0:
        found.append((lower, upper))
    return merge(found)


def merge(spans: Iterator[tuple[int, int]] | Intervals) -> Intervals:
    """The union, ascending, touching intervals joined."""
    merged: Intervals = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def intersect(left: Intervals, right: Intervals) -> Intervals:
    """The intersection of two lists of intervals."""
    spans = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return [(first, last) for first, last in spans if first <= last]


def complement(spans: Intervals, lower: int, upper: int) -> Intervals:
    """The integers of [lower, upper] outside `spans`."""
    rest: Intervals = []
    for first, last in spans:
        if lower < first:
            rest.append((lower, first - 1))
        lower = last + 1
    if lower <= upper:
        rest.append((lower, upper))
    return rest


def _relation(operator: str, polynomial: list[int], lower: int, upper: int) -> Intervals:
    if operator == "<=":
        return nonpositive(polynomial, lower, upper)
    zero = _zeros(polynomial, lower, upper)
    return zero if operator == "==" else complement(zero, lower, upper)


def _zeros(polynomial: list[int], lower: int, upper: int) -> Intervals:
    below = nonpositive(polynomial, lower, upper)
    return intersect(below, nonpositive([-c for c in polynomial], lower, upper))


def _difference(polynomial: Sequence[int]) -> list[int]:
    """p(x + 1) - p(x)."""
    result = [0] * (len(polynomial) - 1)
    for power, c in enumerate(polynomial):
        binomial = 1
        for k in range(power):
            result[k] += c * binomial
            binomial = binomial * (power - k) // (k + 1)
    return result


def _value(polynomial: Sequence[int], x: int) -> int:
    total = 0
    for c in reversed(polynomial):
        total = total * x + c
    return total


def _monotone(polynomial: Sequence[int], a: int, b: int) -> tuple[int, int] | None:
    """The part of [a, b] on which a polynomial that is monotone there is at most zero."""
    at_a, at_b = _value(polynomial, a) <= 0, _value(polynomial, b) <= 0
    if at_a and at_b:
        return a, b
    if not at_a and not at_b:
        return None
    inside, outside = (a, b) if at_a else (b, a)
    while abs(inside - outside) > 1:
        middle = (inside + outside) // 2
        if _value(polynomial, middle) <= 0:
            inside = middle
        else:
            outside = middle
    return (a, inside) if at_a else (inside, b)


MAX_DEGREE = 8


def coefficients(expr: Expr, step: int, residue: int) -> list[int] | None:
    """The coefficients, by power of q, of `expr`, in one symbol, at `step * q + residue`.

    None where a division does not fold, a choice is left, or the degree is too high.
    """
    if step > 1:
        expr = expr.substitute({name: step * symbol(name) + residue for name in expr.symbols})
    powers = {degree(monomial): coefficient for monomial, coefficient in expr.terms.items()}
    highest = max(powers, default=-1)
    if not expr.is_polynomial or highest > MAX_DEGREE:
        return None
    return [powers.get(power, 0) for power in range(highest + 1)]
