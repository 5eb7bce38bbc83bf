"""Size expressions as answers of `symalloc pack` write them: Python syntax with `Max`, `Min` and
`Piecewise((value, condition), …)`.
"""

from __future__ import annotations

from symalloc.size.atoms import Atom, FloorDiv, Max, Min, Mod, Monomial, Select, Symbol
from symalloc.size.condition import And, Condition, Or, Relation
from symalloc.size.expr import Expr


def size_text(expr: Expr) -> str:
    """`expr` in that syntax."""
    if not expr.terms:
        return "0"
    terms = sorted(expr.terms.items(), key=lambda term: (term[1] < 0, -_degree(term[0]), _names(term[0])))
    text = ""
    for monomial, coefficient in terms:
        sign = ("-" if coefficient < 0 else "") if not text else (" - " if coefficient < 0 else " + ")
        text += sign + _term(monomial, abs(coefficient))
    return text


def condition_text(condition: Condition) -> str:
    """`condition` in that syntax."""
    if isinstance(condition, Relation):
        positive = Expr({m: c for m, c in condition.expr.terms.items() if c > 0})
        negative = Expr({m: -c for m, c in condition.expr.terms.items() if c < 0})
        return f"{size_text(positive)} {condition.operator} {size_text(negative)}"
    if isinstance(condition, And | Or):
        parts = [f"({condition_text(c)})" for c in condition.operands]
        return f" {condition.word} ".join(parts) or str(isinstance(condition, And))
    raise TypeError(f"not a condition: {condition!r}")


def _degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def _names(monomial: Monomial) -> list[str]:
    return [atom.key for atom, _ in monomial]


def _term(monomial: Monomial, coefficient: int) -> str:
    factors = [_factor(atom, power) for atom, power in monomial]
    if coefficient != 1 or not factors:
        factors.insert(0, str(coefficient))
    return "*".join(factors)


def _factor(atom: Atom, power: int) -> str:
    text = _atom(atom)
    return text if power == 1 else f"{text}**{power}"


def _atom(atom: Atom) -> str:
    match atom:
        case Symbol(name=name):
            return name
        case FloorDiv(numerator=numerator, denominator=denominator):
            return f"({_operand(numerator)} // {_operand(denominator)})"
        case Mod(numerator=numerator, denominator=denominator):
            return f"({_operand(numerator)} % {_operand(denominator)})"
        case Min(operands=operands):
            return f"Min({', '.join(map(size_text, operands))})"
        case Max(operands=operands):
            return f"Max({', '.join(map(size_text, operands))})"
        case Select():
            return f"Piecewise({', '.join(_pieces(atom))})"


def _pieces(choice: Select) -> list[str]:
    """The cases of `choice`; one in its else-branch goes on in the same list."""
    first = f"({size_text(choice.then)}, {condition_text(choice.condition)})"
    rest = choice.otherwise.as_atom
    if isinstance(rest, Select):
        return [first, *_pieces(rest)]
    return [first, f"({size_text(choice.otherwise)}, True)"]


def _operand(expr: Expr) -> str:
    text = size_text(expr)
    simple = text.isidentifier() or text.isdigit() or isinstance(expr.as_atom, Min | Max)
    return text if simple else f"({text})"
