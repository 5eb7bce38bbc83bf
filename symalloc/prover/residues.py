"""Layer `residues`: quotients and remainders by constants fold once a symbol is written `period * q + r`, r
by r.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import lcm, prod

from symalloc.prover.bounds import Box
from symalloc.size.condition import Condition
from symalloc.size.expr import Division, Expr, symbol

MAX_CLASSES = 36
Part = tuple[tuple[Condition, ...], Box]


def residue_classes(conditions: Sequence[Condition], box: Box) -> Iterator[list[Part]]:
    """Ways to split `conditions` by residues, each a list of parts that cover all points of `box`."""
    periods: dict[str, int] = {}
    for condition in conditions:
        for expr in condition.exprs:
            _collect(expr, 1, periods)
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


def _collect(expr: Expr, outer: int, periods: dict[str, int]) -> None:
    """Multiply up nested constant divisors; every symbol below gets a multiple of their product."""
    for atom in expr.atoms:
        if not isinstance(atom, Division):
            for operand in atom.operands:
                _collect(operand, outer, periods)
            continue
        step = outer * (atom.denominator.as_constant or 1)
        for name in atom.numerator.symbols if step > 1 else ():
            periods[name] = lcm(periods.get(name, 1), step)
        _collect(atom.numerator, step, periods)
        _collect(atom.denominator, outer, periods)
