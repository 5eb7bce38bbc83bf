"""Writes size expressions and conditions in Python syntax, as a person would: `4*m`, `h % 16 == 0`.

What is written reads back (`symalloc.size.parse`) as an equal expression.
"""

from __future__ import annotations

from symalloc.size.condition import And, Condition, Or, Relation
from symalloc.size.expr import Atom, Expr, FloorDiv, Max, Min, Mod, Monomial, Select, Symbol

__all__ = ["render_condition", "render_expr"]


def render_expr(expr: Expr) -> str:
    """`expr` in Python syntax, higher degrees first, but a positive term in the lead."""
    if not expr.terms:
        return "0"
    quotient = _quotient(expr)
    if quotient is not None:
        return _atom(quotient)
    text = ""
    terms = sorted(expr.terms.items(), key=_order)
    lead = next((i for i, (_, coefficient) in enumerate(terms) if coefficient > 0), 0)
    for monomial, coefficient in (terms[lead], *terms[:lead], *terms[lead + 1 :]):
        sign = "-" if coefficient < 0 else "+"
        term = _term(monomial, abs(coefficient))
        if text:
            text += f" {sign} {term}"
        else:
            text = f"-{term}" if coefficient < 0 else term
    return text


def render_condition(condition: Condition) -> str:
    """`condition` in Python syntax, negative terms moved to the other side."""
    match condition:
        case Relation():
            return _relation(condition)
        case And(operands=()):
            return "True"
        case Or(operands=()):
            return "False"
        case And(operands=operands):
            return " and ".join(f"({c})" if isinstance(c, Or) else str(c) for c in operands)
        case Or(operands=operands):
            return " or ".join(f"({c})" if isinstance(c, And) else str(c) for c in operands)
    raise TypeError(f"not a condition: {condition!r}")


def _order(term: tuple[Monomial, int]) -> tuple[int, bool, list[str]]:
    monomial, _ = term
    return (-sum(power for _, power in monomial), False, [atom.key for atom, _ in monomial])


def _quotient(expr: Expr) -> FloorDiv | Mod | None:
    """The `//` or `%` that `expr` is, alone: it needs no brackets."""
    if len(expr.terms) == 1:
        ((monomial, coefficient),) = expr.terms.items()
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            atom = monomial[0][0]
            return atom if isinstance(atom, FloorDiv | Mod) else None
    return None


def _term(monomial: Monomial, coefficient: int) -> str:
    factors = [_factor(atom, power) for atom, power in monomial]
    if coefficient != 1 or not factors:
        factors.insert(0, str(coefficient))
    return "*".join(factors)


def _factor(atom: Atom, power: int) -> str:
    text = _atom(atom)
    if isinstance(atom, FloorDiv | Mod | Select):
        text = f"({text})"
    return text if power == 1 else f"{text}**{power}"


def _atom(atom: Atom) -> str:
    match atom:
        case Symbol(name=name):
            return name
        case FloorDiv(numerator=numerator, denominator=denominator):
            return f"{_operand(numerator)} // {_operand(denominator)}"
        case Mod(numerator=numerator, denominator=denominator):
            return f"{_operand(numerator)} % {_operand(denominator)}"
        case Min(operands=operands):
            return f"min({', '.join(map(render_expr, operands))})"
        case Max(operands=operands):
            return f"max({', '.join(map(render_expr, operands))})"
        case Select(condition=condition, then=then, otherwise=otherwise):
            return f"{_operand(then)} if {render_condition(condition)} else {_operand(otherwise)}"


def _operand(expr: Expr) -> str:
    text = render_expr(expr)
    simple = expr.as_symbol is not None or ((expr.as_constant or 0) >= 0 and expr.as_constant is not None)
    return text if simple else f"({text})"


def _relation(relation: Relation) -> str:
    expr = relation.expr
    left = Expr({m: c for m, c in expr.terms.items() if c > 0})
    right = Expr({m: -c for m, c in expr.terms.items() if c < 0})
    if relation.operator != "<=":
        if left.as_constant is not None:
            left, right = right, left
        return f"{_side(left)} {relation.operator} {_side(right)}"
    if left.as_constant is not None:
        return _at_least(right, left.as_constant)
    return f"{_side(left)} <= {_side(right)}"


def _at_least(side: Expr, bound: int) -> str:
    """`bound <= side` turned around; `m - 3 >= 1` never arises because the constant is all on one side."""
    return f"{_side(side)} >= {bound}"


def _side(expr: Expr) -> str:
    text = render_expr(expr)
    return f"({text})" if len(expr.terms) == 1 and any(isinstance(a, Select) for a in expr.atoms) else text
