"""The least and the greatest value of an expression over the passes of loops, as expressions over sizes.

A loop is eliminated where its ends are plain: the expression is linear in its symbol, with a factor of known
sign, and every condition on the symbol is a bound.  This is exact: the greatest value is taken on, by the
passes that there are.  The symbols of other loops stay, with the conditions on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from symalloc.size.choice import maximum, minimum
from symalloc.size.condition import Condition, Relation, le
from symalloc.size.expr import ZERO, Expr, Symbol, floordiv, symbol


@dataclass(frozen=True, slots=True, kw_only=True)
class Extremes:
    """The least and the greatest value of an expression where `where` holds.

    `counters` are the loop symbols that are left in `least`, `greatest` and `where`, all >= 0.
    """

    least: Expr
    greatest: Expr
    where: tuple[Condition, ...]
    counters: tuple[str, ...] = ()


def extremes(
    expr: Expr, where: Iterable[Condition], counters: Sequence[str], nonnegative: Callable[[Expr], bool]
) -> Extremes:
    """The extremes of `expr` at the points of `where`, over sizes and `counters` (from the outside in).

    `nonnegative` tells which expressions over sizes are known to be >= 0.
    """
    found = Extremes(least=expr, greatest=expr, where=tuple(dict.fromkeys(where)), counters=tuple(counters))
    for counter in reversed(counters):
        found = _without(found, counter, nonnegative) or found
    return found


def _without(found: Extremes, counter: str, nonnegative: Callable[[Expr], bool]) -> Extremes | None:
    """The extremes with `counter` eliminated; None where its ends are not plain."""
    others = frozenset(found.counters) - {counter}
    low, high = factor_of(found.least, counter), factor_of(found.greatest, counter)
    about = [condition for condition in found.where if counter in condition.symbols]
    bounds = _Bounds.of(about, counter, others)
    if low is None or high is None or bounds is None:
        return None
    least = _at_end(found.least, low, counter, bounds.lower, bounds.upper, nonnegative)
    greatest = _at_end(found.greatest, high, counter, bounds.upper, bounds.lower, nonnegative)
    if least is None or greatest is None:
        return None
    kept = [condition for condition in found.where if counter not in condition.symbols]
    runs = [le(a, b) for a in bounds.lowers for b in bounds.uppers]
    held = (c for c in dict.fromkeys((*kept, *runs)) if c.as_bool is not True)
    return Extremes(
        least=least,
        greatest=greatest,
        where=tuple(held),
        counters=tuple(c for c in found.counters if c in others),
    )


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The bounds of one symbol, each over sizes, or over symbols of other loops where it is the only one."""

    lowers: tuple[Expr, ...]
    uppers: tuple[Expr, ...]

    @property
    def lower(self) -> Expr | None:
        return maximum(*self.lowers) if self.lowers else None

    @property
    def upper(self) -> Expr | None:
        return minimum(*self.uppers) if self.uppers else None

    @classmethod
    def of(cls, conditions: Iterable[Condition], counter: str, others: frozenset[str]) -> _Bounds | None:
        """None where a condition is no bound, or where two bounds on a side hang on other loops."""
        lowers: dict[Expr, None] = {}
        uppers: dict[Expr, None] = {}
        for condition in conditions:
            read = _bound(condition, counter, others)
            if read is None:
                return None
            lower, upper = read
            if lower is not None:
                lowers[lower] = None
            if upper is not None:
                uppers[upper] = None
        for side in (lowers, uppers):
            if len(side) > 1 and any(bound.symbols & others for bound in side):
                return None
        return cls(tuple(lowers), tuple(uppers))


def _bound(
    condition: Condition, counter: str, others: frozenset[str]
) -> tuple[Expr | None, Expr | None] | None:
    """The lower and the upper bound that a relation sets; None for what is no bound."""
    if not isinstance(condition, Relation) or condition.operator == "!=":
        return None
    factor = factor_of(condition.expr, counter)
    number = None if factor is None else factor.as_constant
    if not number:
        return None
    rest = condition.expr - symbol(counter) * number  # number * counter + rest <= 0, or == 0
    if abs(number) != 1 and (condition.operator == "==" or rest.symbols & others):
        return None
    upper = floordiv(-rest, number) if number > 0 else None
    lower = -floordiv(-rest, -number) if number < 0 else None
    if condition.operator == "==":
        return (upper, upper) if lower is None else (lower, lower)
    return lower, upper


def factor_of(expr: Expr, counter: str) -> Expr | None:
    """The factor of the symbol `counter` in `expr`; None where `expr` is not linear in it."""
    if counter not in expr.symbols:
        return ZERO
    found = ZERO
    for monomial, coefficient in expr.terms.items():
        powers = [p for atom, p in monomial if isinstance(atom, Symbol) and atom.name == counter]
        hidden = any(counter in atom.symbols for atom, _ in monomial if not isinstance(atom, Symbol))
        if hidden or powers not in ([], [1]):
            return None
        if powers:
            rest = tuple(part for part in monomial if part[0].key != counter)
            found = found + Expr({rest: coefficient})
    return found


def _at_end(
    expr: Expr,
    factor: Expr,
    counter: str,
    towards: Expr | None,
    away: Expr | None,
    nonnegative: Callable[[Expr], bool],
) -> Expr | None:
    """`expr` at the end of a loop that it grows towards; None where that end is not known."""
    if not factor.terms:
        return expr
    end = towards if nonnegative(factor) else away if nonnegative(-factor) else None
    return None if end is None else expr.substitute({counter: end})
