"""Size expressions and conditions as TVM's scalar expressions, in int64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import mul
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from symalloc.relax.extract.tir_to_expr import NotASizeError
from symalloc.relax.ir_types import PrimNode, may_divide_by_zero
from symalloc.size.algebra import Algebra, Operator, Term
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr

_INT64 = range(-(2**63), 2**63)


class PrimBuilder(Algebra[PrimNode, PrimNode]):
    """Builds the expressions of one function, each distinct one once."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.variables, self.memo = variables, {}

    def __call__(self, expr: Expr) -> PrimNode:
        """`expr` in int64.

        Raises KeyError for a symbol that is not among the variables, and NotASizeError for a coefficient
        outside int64.
        """
        return expr.fold(self)

    def condition(self, condition: Condition) -> PrimNode:
        """`condition` as a boolean expression; raises as for an expression."""
        return condition.fold(self)

    def symbol(self, name: str) -> PrimNode:
        return self.variables[name]

    def total(self, terms: Sequence[Term[PrimNode]]) -> PrimNode:
        total = None
        for coefficient, factors in sorted(terms, key=lambda term: term[0] < 0):
            term = _term(coefficient if total is None else abs(coefficient), factors)
            total = term if total is None else total - term if coefficient < 0 else total + term
        return _literal(0) if total is None else total

    def floordiv(self, numerator: PrimNode, denominator: PrimNode) -> PrimNode:
        return tirx.floordiv(numerator, denominator)

    def mod(self, numerator: PrimNode, denominator: PrimNode) -> PrimNode:
        return tirx.floormod(numerator, denominator)

    def minimum(self, operands: Sequence[PrimNode]) -> PrimNode:
        return reduce(tirx.min, operands)

    def maximum(self, operands: Sequence[PrimNode]) -> PrimNode:
        return reduce(tirx.max, operands)

    def select(self, condition: PrimNode, then: PrimNode, otherwise: PrimNode) -> PrimNode:
        """A choice; both sides are evaluated where that does no harm.

        TVM infers the type of a call that is an argument of another, or stands in a type, and has no rule for
        `if_then_else`.
        """
        if may_divide_by_zero(then) or may_divide_by_zero(otherwise):
            return tirx.if_then_else(condition, then, otherwise)
        return prim.Select(condition, then, otherwise)

    def relation(self, operator: Operator, terms: Sequence[Term[PrimNode]]) -> PrimNode:
        left, right = self.difference(terms)
        if operator == "<=":
            return left <= right
        return prim.EQ(left, right) if operator == "==" else prim.NE(left, right)

    def conjunction(self, operands: Sequence[PrimNode]) -> PrimNode:
        return reduce(prim.And, operands) if operands else prim.IntImm("bool", 1)

    def disjunction(self, operands: Sequence[PrimNode]) -> PrimNode:
        return reduce(prim.Or, operands) if operands else prim.IntImm("bool", 0)


def _literal(value: int) -> PrimNode:
    if value not in _INT64:
        raise NotASizeError(f"{value} does not fit in int64")
    return prim.IntImm("int64", value)


def _term(coefficient: int, factors: Sequence[tuple[PrimNode, int]]) -> PrimNode:
    repeated = [factor for factor, power in factors for _ in range(power)]
    if coefficient != 1 or not factors:
        repeated.append(_literal(coefficient))
    return reduce(mul, repeated)
