"""The constraint language of rules: the language of sizes over the quantities of a site, with units checked.

A text is parsed once (`symalloc.size.parse`), with the site's quantities (`offset`, `storage.size`) as its
symbols; at a site they are replaced by the site's expressions.

Units: terms that are added, compared or put into min and max must count the same thing.  An integer takes
the unit of what it stands beside.  A product of elements and bytes/element is in bytes; other products need
a number.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`left operator right`, as it was written."""

    left: Quantity
    operator: str
    right: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Clauses:
    """Comparisons joined by `and` (`every`) or by `or`, as they were written."""

    every: bool
    parts: tuple[Clause, ...]


Clause: TypeAlias = Comparison | Clauses


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A condition over quantities of a site; `clauses` is None where it is not made of comparisons alone."""

    text: str
    condition: Condition
    clauses: Clause | None

    @property
    def names(self) -> frozenset[str]:
        """The quantities that it is about."""
        return self.condition.symbols

    def at(self, values: Values) -> Condition:
        """The condition where the quantities have `values`; raises KeyError where one has none."""
        return self.condition.substitute({name: values[name] for name in self.names})


def compile_constraint(text: str, quantities: Mapping[str, Unit]) -> Constraint:
    """The condition that `text` writes over `quantities`; raises SizeSyntaxError."""
    parser, body = _UnitParser(text, quantities), parse_body(text)
    return Constraint(text=text, condition=parser.condition(body), clauses=parser.clauses(body))


def compile_quantity(text: str, quantities: Mapping[str, Unit]) -> Quantity:
    """The size that `text` writes over `quantities`; raises SizeSyntaxError."""
    parser, body = _UnitParser(text, quantities), parse_body(text)
    parser.expr(body)
    return parser.known[body]


_SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_PRODUCTS: dict[frozenset[Unit], Unit] = {
    frozenset((Unit.ELEMENTS, Unit.BYTES_PER_ELEMENT)): Unit.BYTES,
}
_QUOTIENTS: dict[tuple[Unit, Unit], Unit] = {
    (Unit.BYTES, Unit.BYTES_PER_ELEMENT): Unit.ELEMENTS,
    (Unit.BYTES, Unit.ELEMENTS): Unit.BYTES_PER_ELEMENT,
}


class _UnitParser(SizeParser):
    """The parser of sizes, with the quantities of a site as names, and units."""

    def __init__(self, text: str, quantities: Mapping[str, Unit]) -> None:
        super().__init__(text)
        self.quantities = quantities
        self.known: dict[ast.expr, Quantity] = {}
        self.compared: dict[ast.expr, Comparison] = {}  # by the right side

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
        compared = super().compare(operator, left, right)
        a, b = self.known[left[0]], self.known[right[0]]
        self._common("compare {left} with {right}", left[0], right[0])
        self.compared[right[0]] = Comparison(left=a, operator=_SYMBOLS[type(operator)], right=b)
        return compared

    def clauses(self, node: ast.expr) -> Clause | None:
        """The comparisons of a condition that was parsed."""
        match node:
            case ast.BoolOp(op=operator, values=values):
                parts = [self.clauses(value) for value in values]
                known = tuple(part for part in parts if part is not None)
                every = isinstance(operator, ast.And)
                return Clauses(every=every, parts=known) if len(known) == len(parts) else None
            case ast.Compare(comparators=sides):
                return Clauses(every=True, parts=tuple(self.compared[side] for side in sides))
        return None

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
        a, b = self.known[left].unit, self.known[right].unit
        if a in (None, Unit.NUMBER) or b in (None, Unit.NUMBER):
            return b if a in (None, Unit.NUMBER) and b is not None else a
        found = _PRODUCTS.get(frozenset(unit for unit in (a, b) if unit))
        if found is None:
            raise self._mixed(f"multiply {a} by {b}", left, right)
        return found

    def _quotient(self, left: ast.expr, right: ast.expr) -> Unit | None:
        a, b = self.known[left].unit, self.known[right].unit
        if b in (None, Unit.NUMBER):
            return a
        found = Unit.NUMBER if a is b else _QUOTIENTS.get((a, b)) if a and b else None
        if found is None:
            raise self._mixed(f"divide {a or 'an integer'} by {b}", left, right)
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
