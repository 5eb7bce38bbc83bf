"""Layer `residues`: quotients and remainders by constants fold once a symbol is written `period * q + r`, r
by r.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import lcm, prod

from symalloc.prover.bounds import Box
from symalloc.size.atoms import FloorDiv, Max, Min, Mod, Select
from symalloc.size.condition import And, Condition, Or, Relation
from symalloc.size.expr import Expr, symbol

__all__ = ["residue_classes"]

MAX_CLASSES = 36
Part = tuple[tuple[Condition, ...], Box]


def residue_classes(conditions: Sequence[Condition], box: Box) -> Iterator[list[Part]]:
    """Ways to split `conditions` by residues, each a list of parts that cover all points of `box`."""
    periods: dict[str, int] = {}
    for condition in conditions:
        _collect(condition, periods)
    usable = {n: p for n, p in periods.items() if 1 < p <= MAX_CLASSES}
    if usable and prod(usable.values()) <= MAX_CLASSES:
        yield _split(conditions, box, usable)
    elif usable:
        name = min(usable, key=lambda n: (usable[n], n))
        yield _split(conditions, box, {name: usable[name]})


def _split(conditions: Sequence[Condition], box: Box, periods: dict[str, int]) -> list[Part]:
    parts: list[Part] = []
    for residues in product(*(range(p) for p in periods.values())):
        table, narrowed = {}, box.copy()
        for (name, period), residue in zip(periods.items(), residues, strict=True):
            table[name] = period * symbol(name) + residue
            narrowed.lower[name] = -((residue - box.lower[name]) // period)
            narrowed.upper[name] = (box.upper[name] - residue) // period
        if all(narrowed.lower[n] <= narrowed.upper[n] for n in periods):
            parts.append((tuple(c.substitute(table) for c in conditions), narrowed))
    return parts


def _collect(condition: Condition, periods: dict[str, int]) -> None:
    if isinstance(condition, Relation):
        _collect_expr(condition.expr, 1, periods)
    elif isinstance(condition, And | Or):
        for operand in condition.operands:
            _collect(operand, periods)


def _collect_expr(expr: Expr, outer: int, periods: dict[str, int]) -> None:
    """Multiply up nested constant divisors; every symbol below gets a multiple of their product."""
    for atom in expr.atoms:
        match atom:
            case FloorDiv(numerator=above, denominator=below) | Mod(numerator=above, denominator=below):
                step = outer * (below.as_constant or 1)
                for name in above.symbols if step > 1 else ():
                    periods[name] = lcm(periods.get(name, 1), step)
                _collect_expr(above, step, periods)
                _collect_expr(below, outer, periods)
            case Min(operands=operands) | Max(operands=operands):
                for operand in operands:
                    _collect_expr(operand, outer, periods)
            case Select(condition=test, then=then, otherwise=otherwise):
                _collect(test, periods)
                _collect_expr(then, outer, periods)
                _collect_expr(otherwise, outer, periods)
