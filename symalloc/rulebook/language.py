"""The constraint language of rules: the language of sizes over the quantities of a site, with units checked.

A text is parsed once (`symalloc.size.parse`), with the site's quantities (`offset`, `storage.size`) as its
symbols; at a site they are replaced by the site's expressions.

Units: terms that are added, compared or put into min and max must count the same thing.  An integer takes
the unit of what it stands beside.  A product of elements and bytes/element is in bytes; other products need
a number.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TypeAlias

from symalloc.errors import nearest
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr, symbol
from symalloc.size.parse import SizeParser, parse_body

Values: TypeAlias = Mapping[str, Expr]


class Unit(StrEnum):
    """The unit that a quantity counts."""

    NUMBER = "number"
    BYTES = "bytes"
    ELEMENTS = "elements"
    BYTES_PER_ELEMENT = "bytes/element"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A size over quantities of a site; `unit` is None for an integer, which takes any unit."""

    text: str
    unit: Unit | None
    expr: Expr

    def at(self, values: Values) -> Expr:
        """The size where the quantities have `values`; raises KeyError where one has none."""
        return self.expr.substitute({name: values[name] for name in self.expr.symbols})

    def __str__(self) -> str:
        return f"`{self.text}` is in {self.unit}" if self.unit else f"`{self.text}` is an integer"


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
        unit = " B" if any(size.unit is Unit.BYTES for size in sizes) else ""
        return None if holds(a, b) else f"{a}{unit} {opposite} {b}{unit}"

    def _tests_zero(self, node: ast.expr) -> bool:
        """True if a part only sets the empty tensor apart: nobody needs to read that 80 is not 0."""
        match node:
            case ast.Compare(ops=[ast.Eq()], comparators=[right]):
                return self.sizes[right].expr == 0
        return False


def compile_constraint(text: str, quantities: Mapping[str, Unit]) -> Constraint:
    """The condition that `text` writes over `quantities`; raises SizeSyntaxError."""
    parser, body = _UnitParser(text, quantities), parse_body(text)
    return Constraint(condition=parser.condition(body), body=body, sizes=parser.known)


def compile_quantity(text: str, quantities: Mapping[str, Unit]) -> Quantity:
    """The size that `text` writes over `quantities`; raises SizeSyntaxError."""
    parser, body = _UnitParser(text, quantities), parse_body(text)
    parser.expr(body)
    return parser.known[body]


_POWERS = {Unit.NUMBER: (0, 0), Unit.BYTES: (1, 0), Unit.ELEMENTS: (0, 1), Unit.BYTES_PER_ELEMENT: (1, -1)}
"""The powers of bytes and of elements in each unit."""


class _UnitParser(SizeParser):
    """The parser of sizes, with the quantities of a site as names, and units."""

    def __init__(self, text: str, quantities: Mapping[str, Unit]) -> None:
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
        self.known[node] = Quantity(text=ast.unparse(node), unit=self._unit(node), expr=value)
        return value

    def compare(
        self, operator: ast.cmpop, left: tuple[ast.expr, Expr], right: tuple[ast.expr, Expr]
    ) -> Condition:
        self._common("compare {left} with {right}", left[0], right[0])
        return super().compare(operator, left, right)

    def _unit(self, node: ast.expr) -> Unit | None:
        """The unit of a size whose operands were parsed."""
        match node:
            case ast.Name() | ast.Attribute():
                return self.quantities[ast.unparse(node)]
            case ast.UnaryOp(operand=operand):
                return self.known[operand].unit
            case ast.IfExp(body=body, orelse=orelse):
                return self._common("choose between {left} and {right}", body, orelse)
            case ast.BinOp(left=left, op=operator, right=right):
                return _UNITS[type(operator)](self, left, right)
            case ast.Call(func=ast.Name(id="ceildiv"), args=[left, right]):
                return self._quotient(left, right)
            case ast.Call(func=ast.Name(id="round_up"), args=[value, _]):
                return self.known[value].unit
            case ast.Call(func=ast.Name(id=name), args=args):
                first, *others = sorted(args, key=lambda a: self.known[a].unit is None)
                for other in others:
                    self._common(f"take the {name} of {{left}} and {{right}}", first, other)
                return self.known[first].unit
        return None

    def _common(self, verb: str, left: ast.expr, right: ast.expr) -> Unit | None:
        """The unit that both share; raises SizeSyntaxError naming both operands."""
        a, b = self.known[left], self.known[right]
        if a.unit is None or b.unit is None or a.unit is b.unit:
            return a.unit or b.unit
        hint = "; multiply by itemsize" if {a.unit, b.unit} == {Unit.BYTES, Unit.ELEMENTS} else ""
        raise self._mixed(verb.format(left=a.unit, right=b.unit), left, right, hint)

    def _mixed(self, what: str, left: ast.expr, right: ast.expr, hint: str = "") -> Exception:
        return self.fail(left, f"cannot {what}: {self.known[left]}, {self.known[right]}{hint}")

    def _product(self, left: ast.expr, right: ast.expr) -> Unit | None:
        return self._combined("multiply", left, right, 1)

    def _quotient(self, left: ast.expr, right: ast.expr) -> Unit | None:
        return self._combined("divide", left, right, -1)

    def _combined(self, verb: str, left: ast.expr, right: ast.expr, sign: int) -> Unit | None:
        a, b = self.known[left].unit, self.known[right].unit
        if a is None and b is None:
            return None
        powers = zip(_POWERS[a or Unit.NUMBER], _POWERS[b or Unit.NUMBER], strict=True)
        wanted = tuple(one + sign * other for one, other in powers)
        found = next((unit for unit, powers in _POWERS.items() if powers == wanted), None)
        if found is None:
            raise self._mixed(f"{verb} {a or 'an integer'} by {b}", left, right)
        return found

    def _remainder(self, left: ast.expr, right: ast.expr) -> Unit | None:
        if self.known[right].unit is Unit.NUMBER:
            return self.known[left].unit
        return self._common("take {left} modulo {right}", left, right)

    def _raised(self, left: ast.expr, _right: ast.expr) -> Unit | None:
        unit = self.known[left].unit
        if unit not in (None, Unit.NUMBER):
            raise self.fail(left, f"cannot raise {unit} to a power: {self.known[left]}")
        return unit


_UNITS: dict[type[ast.operator], Callable[[_UnitParser, ast.expr, ast.expr], Unit | None]] = {
    ast.Add: lambda parser, left, right: parser._common("add {right} to {left}", left, right),
    ast.Sub: lambda parser, left, right: parser._common("subtract {right} from {left}", left, right),
    ast.Mult: _UnitParser._product,
    ast.FloorDiv: _UnitParser._quotient,
    ast.Mod: _UnitParser._remainder,
    ast.Pow: _UnitParser._raised,
}
