"""The arithmetic of a counterexample: `20 B > 16 B` for `offset + nbytes <= storage.size` at m = 5."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache

from symalloc.rulebook.language import Quantity, compile_quantity
from symalloc.rulebook.sites import SITE_KINDS
from symalloc.size.expr import Expr
from symalloc.size.units import Unit

__all__ = ["consequence"]

_OPPOSITE: dict[type[ast.cmpop], str] = {
    ast.LtE: ">",
    ast.Lt: ">=",
    ast.GtE: "<",
    ast.Gt: "<=",
    ast.Eq: "!=",
    ast.NotEq: "==",
}


def consequence(
    constraint: str, site: str, quantities: Mapping[str, Expr], point: Mapping[str, int]
) -> str | None:
    """Both sides of `constraint` at `point`, with the comparison that holds instead.

    None where a quantity has no value there, or the constraint holds.
    """
    try:
        return _broken(ast.parse(constraint, mode="eval").body, site, quantities, point)
    except (KeyError, ZeroDivisionError):
        return None


def _broken(
    node: ast.expr, site: str, quantities: Mapping[str, Expr], point: Mapping[str, int]
) -> str | None:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            found = (_broken(part, site, quantities, point) for part in parts)
            return next((text for text in found if text is not None), None)
        case ast.BoolOp(op=ast.Or(), values=parts):
            telling = [part for part in parts if not _tests_zero(part)] or parts
            texts = [_broken(part, site, quantities, point) for part in telling]
            return None if None in texts else " and ".join(text for text in texts if text is not None)
        case ast.Compare(left=left, ops=ops, comparators=others):
            for first, operator, second in zip([left, *others], ops, others, strict=False):
                text = _compared(first, operator, second, site, quantities, point)
                if text is not None:
                    return text
    return None


def _compared(
    left: ast.expr,
    operator: ast.cmpop,
    right: ast.expr,
    site: str,
    quantities: Mapping[str, Expr],
    point: Mapping[str, int],
) -> str | None:
    first, second = _quantity(ast.unparse(left), site), _quantity(ast.unparse(right), site)
    a, b = (side.compute(quantities).evaluate(point) for side in (first, second))
    if _holds(operator, a, b):
        return None
    unit = " B" if Unit.BYTES in (first.unit, second.unit) else ""
    return f"{a}{unit} {_OPPOSITE[type(operator)]} {b}{unit}"


@lru_cache(maxsize=256)
def _quantity(text: str, site: str) -> Quantity:
    return compile_quantity(text, SITE_KINDS[site].quantities)


def _holds(operator: ast.cmpop, a: int, b: int) -> bool:
    match operator:
        case ast.LtE():
            return a <= b
        case ast.Lt():
            return a < b
        case ast.GtE():
            return a >= b
        case ast.Gt():
            return a > b
        case ast.Eq():
            return a == b
    return a != b


def _tests_zero(node: ast.expr) -> bool:
    """Whether the part only sets the empty tensor apart: nobody needs to read that 80 is not 0."""
    match node:
        case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=0)]):
            return True
    return False
