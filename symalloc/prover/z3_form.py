"""Size expressions as z3 terms: the only conversion to z3.

z3's integer division rounds so that the remainder is not negative; that is Python's for divisors of at
least 1, and the conditions given here hold no other divisor where they matter (`symalloc.size.defined`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add, mul
from typing import Any

import z3

from symalloc.size.algebra import Algebra, Operator, Term


class Z3Terms(Algebra[Any, Any]):
    """Terms of z3's main context; symbols are integer constants of the same name."""

    def symbol(self, name: str) -> Any:
        return z3.Int(name)

    def total(self, terms: Sequence[Term[Any]]) -> Any:
        return reduce(add, (self._term(*term) for term in terms)) if terms else z3.IntVal(0)

    def _term(self, coefficient: int, factors: Sequence[tuple[Any, int]]) -> Any:
        repeated = [factor for factor, power in factors for _ in range(power)]
        if coefficient != 1 or not factors:
            repeated.insert(0, z3.IntVal(coefficient))
        return reduce(mul, repeated)

    def floordiv(self, numerator: Any, denominator: Any) -> Any:
        return numerator / denominator

    def mod(self, numerator: Any, denominator: Any) -> Any:
        return numerator % denominator

    def minimum(self, operands: Sequence[Any]) -> Any:
        return reduce(lambda a, b: z3.If(a <= b, a, b), operands)

    def maximum(self, operands: Sequence[Any]) -> Any:
        return reduce(lambda a, b: z3.If(a >= b, a, b), operands)

    def select(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return z3.If(condition, then, otherwise)

    def relation(self, operator: Operator, terms: Sequence[Term[Any]]) -> Any:
        left, right = self.difference(terms)
        if operator == "<=":
            return left <= right
        return left == right if operator == "==" else left != right

    def conjunction(self, operands: Sequence[Any]) -> Any:
        return z3.And(*operands) if operands else z3.BoolVal(True)

    def disjunction(self, operands: Sequence[Any]) -> Any:
        return z3.Or(*operands) if operands else z3.BoolVal(False)


def read_point(model: Any, names: Mapping[str, int]) -> dict[str, int]:
    """The values of `names` in `model`; where it leaves one open, the value that `names` gives."""
    values = {name: model.eval(z3.Int(name)) for name in names}
    return {n: v.as_long() if z3.is_int_value(v) else names[n] for n, v in values.items()}
