"""Size expressions: exact polynomials over shape symbols, conditions on them, reading and writing both."""

from symalloc.size.condition import (
    FALSE,
    TRUE,
    And,
    Condition,
    Or,
    Relation,
    conjunction,
    disjunction,
    negate,
)
from symalloc.size.expr import Expr, constant, symbol
from symalloc.size.parse import SizeSyntaxError, parse_condition, parse_expr

__all__ = [
    "FALSE",
    "TRUE",
    "And",
    "Condition",
    "Expr",
    "Or",
    "Relation",
    "SizeSyntaxError",
    "conjunction",
    "constant",
    "disjunction",
    "negate",
    "parse_condition",
    "parse_expr",
    "symbol",
]
