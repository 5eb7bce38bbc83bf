"""Exact linear programming, just enough to find a contradiction as a non-negative combination of
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

__all__ = ["negative_combination"]

Row = dict[int, int]
Key = TypeVar("Key")


def negative_combination(
    columns: Sequence[Mapping[Key, int]], costs: Sequence[int], *, pivots: int
) -> bool | None:
    """Whether weights w >= 0 exist with `sum(w * column) <= 0` in each row and `sum(w * cost) < 0`.

    None where `pivots` steps do not decide it.
    """
    rows: dict[Key, Row] = {}
    for index, column in enumerate(columns):
        for key, value in column.items():
            rows.setdefault(key, {})[index] = value
    table: list[Row] = []
    basis: list[int] = []
    for slack, row in enumerate(rows.values(), start=len(columns)):
        row[slack] = 1
        table.append(row)
        basis.append(slack)
    objective: Row = {i: c for i, c in enumerate(costs) if c}
    for _ in range(pivots):
        entering = min((i for i, c in objective.items() if c < 0), default=None)
        if entering is None:
            return False
        leaving = _leaving(table, basis, entering)
        if leaving is None:
            return True
        pivot = table[leaving]
        for index, row in enumerate(table):
            if index != leaving and entering in row:
                table[index] = _eliminate(row, pivot, entering)
        objective = _eliminate(objective, pivot, entering)
        basis[leaving] = entering
    return None


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
