"""The constraint language of rules: the language of sizes over the quantities of a site.

A text is parsed once (`symalloc.size.parse`), with the site's quantities (`offset`, `storage.size`) as its
symbols; at a site they are replaced by the site's expressions.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from symalloc.errors import nearest
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr, symbol
from symalloc.size.parse import SizeParser, parse_body

Values: TypeAlias = Mapping[str, Expr]
Unit: TypeAlias = Literal["number", "bytes", "elements", "bytes/element"]
"""The unit that a quantity counts."""
Units: TypeAlias = Mapping[str, Unit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A size over quantities of a site; `in_bytes`: no product or quotient, and of bytes alone."""

    expr: Expr
    in_bytes: bool


_OPPOSITES: Mapping[type[ast.cmpop], tuple[Callable[[int, int], bool], str]] = {
    ast.LtE: (operator.le, ">"),
    ast.Lt: (operator.lt, ">="),
    ast.GtE: (operator.ge, "<"),
    ast.Gt: (operator.gt, "<="),
    ast.Eq: (operator.eq, "!="),
    ast.NotEq: (operator.ne, "=="),
}
"""A comparison, and the one that holds instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A condition over quantities of a site, and the `sizes` in its syntax tree `body`."""

    condition: Condition
    body: ast.expr
    sizes: Mapping[ast.expr, Quantity]

    @property
    def names(self) -> frozenset[str]:
        """The quantities that it is about."""
        return self.condition.symbols

    def at(self, values: Values) -> Condition:
        """The condition where the quantities have `values`; raises KeyError where one has none."""
        return self.condition.substitute({name: values[name] for name in self.names})

    def consequence(self, values: Values, point: Mapping[str, int]) -> str | None:
        """Both sides of what fails at `point`, with the comparison that holds instead: "20 B > 16 B".

        None where a quantity has no value there, or the condition holds.
        """
        try:
            return self._broken(self.body, {name: values[name].evaluate(point) for name in self.names})
        except (KeyError, ZeroDivisionError):
            return None

    def _broken(self, node: ast.expr, numbers: Mapping[str, int]) -> str | None:
        match node:
            case ast.Compare(left=first, ops=operators, comparators=others):
                sides = zip(pairwise((first, *others)), operators, strict=True)
                found = (self._compared(*pair, kind, numbers) for pair, kind in sides)
                return next(filter(None, found), None)
            case ast.BoolOp(op=ast.And(), values=parts):
                return next(filter(None, (self._broken(part, numbers) for part in parts)), None)
            case ast.BoolOp(values=parts):
                telling = [part for part in parts if not self._tests_zero(part)] or parts
                texts = [self._broken(part, numbers) or "" for part in telling]
                return " and ".join(texts) if all(texts) else None
        return None

    def _compared(
        self, left: ast.expr, right: ast.expr, kind: ast.cmpop, numbers: Mapping[str, int]
    ) -> str | None:
        sizes = self.sizes[left], self.sizes[right]
        a, b = (size.expr.evaluate(numbers) for size in sizes)
        holds, opposite = _OPPOSITES[type(kind)]
        unit = " B" if any(size.in_bytes for size in sizes) else ""
        return None if holds(a, b) else f"{a}{unit} {opposite} {b}{unit}"

    def _tests_zero(self, node: ast.expr) -> bool:
        """True if a part only sets the empty tensor apart: nobody needs to read that 80 is not 0."""
        match node:
            case ast.Compare(ops=[ast.Eq()], comparators=[right]):
                return self.sizes[right].expr == 0
        return False


def compile_constraint(text: str, quantities: Units) -> Constraint:
    """The condition that `text` writes over `quantities`; raises SizeSyntaxError."""
    parser, body = _QuantityParser(text, quantities), parse_body(text)
    return Constraint(condition=parser.condition(body), body=body, sizes=parser.known)


def compile_quantity(text: str, quantities: Units) -> Quantity:
    """The size that `text` writes over `quantities`; raises SizeSyntaxError."""
    parser, body = _QuantityParser(text, quantities), parse_body(text)
    parser.expr(body)
    return parser.known[body]


class _QuantityParser(SizeParser):
    """The parser of sizes, with the quantities of a site as names."""

    def __init__(self, text: str, quantities: Units) -> None:
        super().__init__(text)
        self.quantities = quantities
        self.known: dict[ast.expr, Quantity] = {}

    def name(self, node: ast.Name | ast.Attribute) -> Expr:
        name = ast.unparse(node)
        if name not in self.quantities:
            known = ", ".join(self.quantities) or "no quantities"
            problem = f"unknown name `{name}`; this site offers {known}"
            raise self.fail(node, problem, nearest(name, list(self.quantities)))
        return symbol(name)

    def expr(self, node: ast.expr) -> Expr:
        value = super().expr(node)
        units = {self.quantities[name] for name in value.symbols}
        added = not any(sign in ast.unparse(node) for sign in ("*", "//", "ceildiv"))
        self.known[node] = Quantity(expr=value, in_bytes=added and units == {"bytes"})
        return value
