"""SolutionSet linear programming, just enough to find a contradiction as a non-negative combination of
inequalities.

The question is whether non-negative weights make a sum of the columns at most zero in every row and
negative in cost. All right-hand sides are zero, so the origin is a vertex and the simplex method starts
there; Bland's rule ends cycling. Integers throughout: a row is scaled by the pivot and divided by the
common divisor of its entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import TypeVar

from symalloc.prover.budget import Meter

GREEDY_STEPS = 30  # of the largest cost first; Bland's rule after them cannot cycle
Row = dict[int, int]
Key = TypeVar("Key")


def negative_combination(
    columns: Sequence[Mapping[Key, int]], costs: Sequence[int], meter: Meter
) -> bool | None:
    """True if weights w >= 0 exist with `sum(w * column) <= 0` in each row and `sum(w * cost) < 0`.

    None where `meter` runs out first.
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
