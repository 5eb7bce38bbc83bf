"""Layer `products`: a contradiction as a sum of inequalities, each times something that is not negative.

Symbols are moved to start at zero, so monomials are non-negative.  From facts `f >= 0` come columns `m * f`
for monomials m, and products of two facts; the exact simplex then looks for non-negative weights
whose sum has no positive coefficient and a negative constant (a Handelman/Krivine certificate, searched by
linear programming).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations_with_replacement
from math import gcd
from typing import TypeVar

from symalloc.prover.bounds import Box
from symalloc.prover.budget import Meter
from symalloc.size.condition import Condition, Relation
from symalloc.size.expr import Expr, Monomial, degree, divide, symbol

MAX_COLUMNS = 90
MAX_DEGREE = 6
GREEDY_STEPS = 30  # of the largest cost first; Bland's rule after them cannot cycle
FAR = 2**62  # an upper bound that only says that a symbol fits int64


Row = dict[int, int]
Key = TypeVar("Key")


def contradiction(conditions: Iterable[Condition], box: Box, meter: Meter) -> bool:
    """True if the polynomial relations among `conditions` are shown to contradict each other in `box`."""
    facts = _facts(conditions, box)
    limits = _limits(facts, box)
    if _refuted([*facts, *limits], meter):
        return True
    if all(degree(m) <= 1 for f in facts for m in f.terms):
        return False
    near = [limit for limit in limits if limit.terms.get((), 0) < FAR]
    return _refuted(_products(facts, near), meter)


def _refuted(facts: Sequence[Expr], meter: Meter) -> bool:
    columns = [{m: c for m, c in f.terms.items() if m} for f in facts]
    costs = [f.terms.get((), 0) for f in facts]
    return negative_combination(columns, costs, meter) is True


def _facts(conditions: Iterable[Condition], box: Box) -> list[Expr]:
    """Expressions that are at least zero, over symbols that start at zero."""
    found: list[Expr] = []
    for condition in conditions:
        if (
            not isinstance(condition, Relation)
            or condition.operator == "!="
            or not condition.expr.is_polynomial
        ):
            continue
        expr = condition.expr.shift(box.lower)
        found.append(-expr)
        if condition.operator == "==":
            found.append(expr)
    return found


def _limits(facts: Iterable[Expr], box: Box) -> list[Expr]:
    names = sorted(frozenset().union(*(f.symbols for f in facts)))
    return [box.upper[n] - box.lower[n] - symbol(n) for n in names]


def _products(facts: list[Expr], limits: list[Expr]) -> list[Expr]:
    """The facts and limits, and products of them that may cancel each other's monomials."""
    columns = dict.fromkeys((*facts, *limits))
    if len(facts) <= 8:
        for left, right in combinations_with_replacement(facts, 2):
            if _top(left) <= 1 and _top(right) <= 1:
                columns.setdefault(left * right)
    found = (m for f in columns for m, c in f.terms.items() if c > 0 and degree(m) > 1)
    for monomial in sorted(dict.fromkeys(found), key=degree):
        for fact in (*facts, *limits):
            for multiplier in _multipliers(monomial, fact):
                columns.setdefault(multiplier * fact)
                if len(columns) >= MAX_COLUMNS:
                    return list(columns)
    return list(columns)


def _multipliers(wanted: Monomial, fact: Expr) -> Iterable[Expr]:
    """Monomials m such that `m * fact` has `wanted` with a negative coefficient."""
    for monomial, coefficient in fact.terms.items():
        rest = divide(wanted, monomial) if coefficient < 0 and monomial else None
        if rest and degree(rest) + _top(fact) <= MAX_DEGREE:
            yield Expr({rest: 1})


def _top(expr: Expr) -> int:
    return max(map(degree, expr.terms), default=0)


def negative_combination(
    columns: Sequence[Mapping[Key, int]], costs: Sequence[int], meter: Meter
) -> bool | None:
    """True if weights w >= 0 exist with `sum(w * column) <= 0` in each row and `sum(w * cost) < 0`.

    None where `meter` runs out first.  All right-hand sides are zero, so the origin is a vertex and the
    simplex method starts there; Bland's rule ends cycling.  Integers throughout: a row is scaled by the pivot
    and divided by the common divisor of its entries.
    """
    rows, used = _presolved(columns)
    table: list[Row] = []
    basis: list[int] = []
    for slack, row in enumerate(rows, start=len(columns)):
        table.append({**row, slack: 1})
        basis.append(slack)
    objective: Row = {i: costs[i] for i in used if costs[i]}
    step = 0
    while (entering := _entering(objective, greedy=step < GREEDY_STEPS)) is not None:
        step += 1
        leaving = _leaving(table, basis, entering)
        if leaving is None:
            return True
        pivot = table[leaving]
        words = 1 + pivot[entering].bit_length() // 64
        if not meter.spend(words * sum(len(row) for row in table if entering in row)):
            return None
        for index, row in enumerate(table):
            if index != leaving and entering in row:
                table[index] = _eliminate(row, pivot, entering)
        objective = _eliminate(objective, pivot, entering)
        basis[leaving] = entering
    return False


def _presolved(columns: Sequence[Mapping[Key, int]]) -> tuple[list[Row], set[int]]:
    """The rows, and the columns that can have weight: none with a positive entry in a row without others."""
    used = set(range(len(columns)))
    while True:
        rows: dict[Key, Row] = {}
        for index in used:
            for key, value in columns[index].items():
                rows.setdefault(key, {})[index] = value
        idle = {i for row in rows.values() if min(row.values()) > 0 for i in row}
        if not idle:
            return [row for row in rows.values() if max(row.values()) > 0], used
        used -= idle


def _entering(objective: Row, *, greedy: bool) -> int | None:
    if greedy:
        index, cost = min(objective.items(), key=lambda item: item[1], default=(0, 0))
        return index if cost < 0 else None
    return min((i for i, c in objective.items() if c < 0), default=None)


def _leaving(table: Sequence[Row], basis: Sequence[int], entering: int) -> int | None:
    bounded = [i for i, row in enumerate(table) if row.get(entering, 0) > 0]
    return min(bounded, key=lambda i: basis[i], default=None)


def _eliminate(row: Row, pivot: Row, column: int) -> Row:
    """A positive multiple of `row` plus a multiple of `pivot`, without `column`."""
    factor, scale = row[column], pivot[column]
    result = {i: value * scale for i, value in row.items()}
    for i, value in pivot.items():
        changed = result.get(i, 0) - value * factor
        if changed:
            result[i] = changed
        else:
            result.pop(i, None)
    divisor = gcd(*result.values())
    return {i: value // divisor for i, value in result.items()} if divisor > 1 else result
