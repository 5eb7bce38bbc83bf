"""Size expressions as z3 terms: the only conversion to z3.

z3's integer division rounds so that the remainder is not negative; that is Python's for divisors of at
least 1, and the conditions given here hold no other divisor where they matter (`symalloc.size.defined`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import z3

from symalloc.size.atoms import Atom, FloorDiv, Max, Min, Mod, Select, Symbol
from symalloc.size.condition import And, Condition, Or, Relation
from symalloc.size.expr import Expr

__all__ = ["Translator"]


class Translator:
    """Converts into one z3 context; symbols become integer constants of the same name."""

    def __init__(self, context: Any = None) -> None:
        self.context = context
        self._atoms: dict[str, Any] = {}

    def condition(self, condition: Condition) -> Any:
        """The z3 Boolean for `condition`."""
        match condition:
            case Relation(operator=operator, expr=expr):
                return self._relation(operator, expr)
            case And(operands=operands):
                return z3.And(*map(self.condition, operands)) if operands else z3.BoolVal(True, self.context)
            case Or(operands=operands):
                return z3.Or(*map(self.condition, operands)) if operands else z3.BoolVal(False, self.context)
        raise TypeError(f"not a condition: {condition!r}")

    def expr(self, expr: Expr) -> Any:
        """The z3 integer for `expr`."""
        return self._sum(expr.terms.items()) if expr.terms else z3.IntVal(0, self.context)

    def bounds(self, name: str, lower: int, upper: int) -> list[Any]:
        """`lower <= name <= upper`."""
        term = self._atom(Symbol(name))
        return [term >= lower, term <= upper]

    def read(self, model: Any, names: Mapping[str, int]) -> dict[str, int]:
        """The values of `names` in `model`; where it leaves one open, the value that `names` gives."""
        point = {}
        for name, otherwise in names.items():
            value = model.eval(z3.Int(name, self.context))
            point[name] = value.as_long() if z3.is_int_value(value) else otherwise
        return point

    def _relation(self, operator: str, expr: Expr) -> Any:
        left = self._sum([(m, c) for m, c in expr.terms.items() if c > 0])
        right = self._sum([(m, -c) for m, c in expr.terms.items() if c < 0])
        if operator == "<=":
            return left <= right
        return left == right if operator == "==" else left != right

    def _sum(self, terms: Any) -> Any:
        parts = [self._term(monomial, coefficient) for monomial, coefficient in terms]
        return reduce(lambda a, b: a + b, parts) if parts else z3.IntVal(0, self.context)

    def _term(self, monomial: Any, coefficient: int) -> Any:
        factors = [self._atom(atom) for atom, power in monomial for _ in range(power)]
        if coefficient != 1 or not factors:
            factors.insert(0, z3.IntVal(coefficient, self.context))
        return reduce(lambda a, b: a * b, factors)

    def _atom(self, atom: Atom) -> Any:
        found = self._atoms.get(atom.key)
        if found is None:
            found = self._atoms[atom.key] = self._convert(atom)
        return found

    def _convert(self, atom: Atom) -> Any:
        match atom:
            case Symbol(name=name):
                return z3.Int(name, self.context)
            case FloorDiv(numerator=above, denominator=below):
                return self.expr(above) / self.expr(below)
            case Mod(numerator=above, denominator=below):
                return self.expr(above) % self.expr(below)
            case Min(operands=operands):
                return reduce(lambda a, b: z3.If(a <= b, a, b), map(self.expr, operands))
            case Max(operands=operands):
                return reduce(lambda a, b: z3.If(a >= b, a, b), map(self.expr, operands))
            case Select(condition=test, then=then, otherwise=otherwise):
                return z3.If(self.condition(test), self.expr(then), self.expr(otherwise))
