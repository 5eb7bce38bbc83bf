"""Layer `residues`: quotients and remainders by constants fold once a symbol is written `period * q + r`, r
by r.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import lcm, prod

from symalloc.prover.bounds import Box
from symalloc.size.condition import Condition
from symalloc.size.expr import Division, Expr, symbol

MAX_CLASSES = 36
Part = tuple[tuple[Condition, ...], Box]


def residue_classes(conditions: Sequence[Condition], box: Box) -> Iterator[list[Part]]:
    """Ways to split `conditions` by residues, each a list of parts that cover all points of `box`."""
    usable = {n: p for n, p in periods(conditions).items() if 1 < p <= MAX_CLASSES}
    if usable and prod(usable.values()) <= MAX_CLASSES:
        yield _split(conditions, box, usable)
    elif usable:
        name = min(usable, key=lambda n: (usable[n], n))
        yield _split(conditions, box, {name: usable[name]})


def periods(conditions: Iterable[Condition]) -> dict[str, int]:
    """A period of the quotients and remainders by constants in `conditions`, for each symbol in them."""
    found: dict[str, int] = {}
    for condition in conditions:
        for expr in condition.exprs:
            _collect(expr, 1, found)
    return found


def _split(conditions: Sequence[Condition], box: Box, chosen: dict[str, int]) -> list[Part]:
    parts: list[Part] = []
    for residues in product(*(range(p) for p in chosen.values())):
        table, narrowed = {}, box.copy()
        for (name, period), residue in zip(chosen.items(), residues, strict=True):
            table[name] = period * symbol(name) + residue
            narrowed.lower[name], narrowed.upper[name] = box.quotients(name, period, residue)
        if all(narrowed.lower[n] <= narrowed.upper[n] for n in chosen):
            parts.append((tuple(c.substitute(table) for c in conditions), narrowed))
    return parts


def _collect(expr: Expr, outer: int, found: dict[str, int]) -> None:
    """Multiply up nested constant divisors; every symbol below gets a multiple of their product."""
    for atom in expr.atoms:
        if not isinstance(atom, Division):
            for operand in atom.operands:
                _collect(operand, outer, found)
            continue
        step = outer * (atom.denominator.as_constant or 1)
        for name in atom.numerator.symbols if step > 1 else ():
            found[name] = lcm(found.get(name, 1), step)
        _collect(atom.numerator, step, found)
        _collect(atom.denominator, outer, found)
