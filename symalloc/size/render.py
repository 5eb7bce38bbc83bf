"""Writes size expressions and conditions in Python syntax, as a person would: `4*m`, `h % 16 == 0`.

What is written reads back (`symalloc.size.parse`) as an equal expression.
"""

from __future__ import annotations

from symalloc.size.atoms import Atom, FloorDiv, Max, Min, Mod, Monomial, Select, Symbol
from symalloc.size.condition import And, Condition, Or, Relation
from symalloc.size.expr import Expr

__all__ = ["render_condition", "render_expr"]


def render_expr(expr: Expr) -> str:
    """`expr` in Python syntax, higher degrees first, but a positive term in the lead."""
    if not expr.terms:
        return "0"
    alone = expr.as_atom
    if isinstance(alone, FloorDiv | Mod):
        return _atom(alone)  # needs no brackets
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
            return f"{_numerator(numerator)} // {_operand(denominator)}"
        case Mod(numerator=numerator, denominator=denominator):
            return f"{_numerator(numerator)} % {_operand(denominator)}"
        case Min(operands=operands):
            return f"min({', '.join(map(render_expr, operands))})"
        case Max(operands=operands):
            return f"max({', '.join(map(render_expr, operands))})"
        case Select(condition=condition, then=then, otherwise=otherwise):
            return f"{_operand(then)} if {render_condition(condition)} else {_operand(otherwise)}"


def _numerator(expr: Expr) -> str:
    """`expr` to the left of `//` or `%`, which bind like `*` and from the left."""
    if len(expr.terms) != 1 or any(isinstance(a, FloorDiv | Mod | Select) for a in expr.atoms):
        return _operand(expr)
    text = render_expr(expr)
    return f"({text})" if text.startswith("-") else text


def _operand(expr: Expr) -> str:
    text = render_expr(expr)
    atom, value = expr.as_atom, expr.as_constant
    simple = isinstance(atom, Symbol | Min | Max) or (value is not None and value >= 0)
    return text if simple or (text.startswith("(") and isinstance(atom, Select)) else f"({text})"


def _relation(relation: Relation) -> str:
    expr = relation.expr
    left = Expr({m: c for m, c in expr.terms.items() if c > 0})
    right = Expr({m: -c for m, c in expr.terms.items() if c < 0})
    if relation.operator != "<=":
        if left.as_constant is not None:
            left, right = right, left
        return f"{left} {relation.operator} {right}"
    if left.as_constant is not None:
        return f"{right} >= {left}"
    if left.terms.get(()) == 1:
        return f"{left - 1} < {right}"
    return f"{left} <= {right}"
