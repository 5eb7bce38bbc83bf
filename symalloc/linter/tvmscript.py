"""Writes size expressions and conditions as TVMScript: `m * 4`, `T.min(n, 8)`, `T.And(m <= 4, n <= 2)`."""

from __future__ import annotations

from symalloc.size.atoms import Atom, FloorDiv, Max, Min, Mod, Monomial, Select, Symbol
from symalloc.size.condition import And, Condition, Or, Relation
from symalloc.size.expr import Expr

__all__ = ["write_condition", "write_expr"]


def write_expr(expr: Expr) -> str:
    """`expr` over the script's own symbols; products put the factor last, as shapes are read (`m * 4`)."""
    text = ""
    for monomial, coefficient in sorted(expr.terms.items(), key=lambda term: (term[1] < 0, not term[0])):
        term = _term(monomial, abs(coefficient))
        sign = "-" if coefficient < 0 else "+"
        text = f"{text} {sign} {term}" if text else term if coefficient > 0 else f"0 - {term}"
    return text or "0"


def write_condition(condition: Condition) -> str:
    """`condition` as an expression that R.assert_op takes."""
    match condition:
        case Relation(operator=operator, expr=expr):
            offset = expr.terms.get((), 0)
            left = Expr({m: c for m, c in expr.terms.items() if c > 0 and m})
            right = Expr({m: -c for m, c in expr.terms.items() if c < 0 and m})
            if not left.terms and operator == "<=":
                return f"{write_expr(right)} >= {offset}"
            if not left.terms:
                left, right, offset = right, left, -offset
            return f"{write_expr(left)} {operator} {write_expr(right - offset)}"
        case And(operands=operands) if operands:
            return _joined("T.And", operands)
        case Or(operands=operands) if operands:
            return _joined("T.Or", operands)
    raise TypeError(f"no condition to write: {condition!r}")


def _joined(function: str, operands: tuple[Condition, ...]) -> str:
    """Nested calls, for T.And and T.Or take two arguments."""
    *others, text = map(write_condition, operands)
    for other in reversed(others):
        text = f"{function}({other}, {text})"
    return text


def _term(monomial: Monomial, coefficient: int) -> str:
    factors = [_atom(atom) for atom, power in monomial for _ in range(power)]
    if coefficient != 1 or not factors:
        factors.append(str(coefficient))
    return " * ".join(factors)


def _atom(atom: Atom) -> str:
    match atom:
        case Symbol(name=name):
            return name
        case FloorDiv(numerator=numerator, denominator=denominator):
            return f"({_operand(numerator)} // {_operand(denominator)})"
        case Mod(numerator=numerator, denominator=denominator):
            return f"({_operand(numerator)} % {_operand(denominator)})"
        case Min(operands=operands):
            return _extremum("T.min", operands)
        case Max(operands=operands):
            return _extremum("T.max", operands)
        case Select(condition=condition, then=then, otherwise=otherwise):
            return (
                f"T.if_then_else({write_condition(condition)}, {write_expr(then)}, {write_expr(otherwise)})"
            )


def _extremum(function: str, operands: tuple[Expr, ...]) -> str:
    *others, text = map(write_expr, operands)
    for other in reversed(others):
        text = f"{function}({other}, {text})"
    return text


def _operand(expr: Expr) -> str:
    simple = expr.as_symbol is not None or expr.as_constant is not None
    return write_expr(expr) if simple else f"({write_expr(expr)})"
