"""The arithmetic of a counterexample: `20 B > 16 B` for `offset + nbytes <= storage.size` at m = 5."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from symalloc.rulebook.language import Clause, Clauses, Comparison, Quantity, Unit
from symalloc.size.expr import Expr

Point = Mapping[str, int]
_MEANING: dict[str, tuple[Callable[[int, int], bool], str]] = {  # and the comparison that holds instead
    "<=": (operator.le, ">"),
    "<": (operator.lt, ">="),
    ">=": (operator.ge, "<"),
    ">": (operator.gt, "<="),
    "==": (operator.eq, "!="),
    "!=": (operator.ne, "=="),
}


def consequence(clause: Clause, quantities: Mapping[str, Expr], point: Point) -> str | None:
    """Both sides of `clause` at `point`, with the comparison that holds instead.

    None where a quantity has no value there, or the clause holds.
    """
    try:
        return _broken(clause, quantities, point)
    except (KeyError, ZeroDivisionError):
        return None


def _broken(clause: Clause, quantities: Mapping[str, Expr], point: Point) -> str | None:
    if isinstance(clause, Comparison):
        return _compared(clause, quantities, point)
    if clause.every:
        found = (_broken(part, quantities, point) for part in clause.parts)
        return next((text for text in found if text is not None), None)
    telling = [part for part in clause.parts if not _tests_zero(part)] or clause.parts
    texts = [_broken(part, quantities, point) for part in telling]
    return None if None in texts else " and ".join(text for text in texts if text is not None)


def _compared(clause: Comparison, quantities: Mapping[str, Expr], point: Point) -> str | None:
    a, b = (_value(side, quantities, point) for side in (clause.left, clause.right))
    holds, opposite = _MEANING[clause.operator]
    unit = " B" if Unit.BYTES in (clause.left.unit, clause.right.unit) else ""
    return None if holds(a, b) else f"{a}{unit} {opposite} {b}{unit}"


def _value(side: Quantity, quantities: Mapping[str, Expr], point: Point) -> int:
    return side.expr.evaluate({name: quantities[name].evaluate(point) for name in side.expr.symbols})


def _tests_zero(clause: Clause) -> bool:
    """True if the part only sets the empty tensor apart: nobody needs to read that 80 is not 0."""
    if isinstance(clause, Clauses):
        return len(clause.parts) == 1 and _tests_zero(clause.parts[0])
    return clause.operator == "==" and clause.right.expr == 0
