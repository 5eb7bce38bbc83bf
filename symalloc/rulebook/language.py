"""The constraint language of rules: Python's arithmetic over the quantities of a site, with units checked.

Accepted: the site's quantities (`offset`, `storage.size`), integers, `+ - * // %`, `2**63`, `min(..)`,
`max(..)`, `round_up(value, multiple)`, comparisons (chained too), `and`, `or`, `not`.  The text is parsed
with `ast` and never evaluated; it is compiled once into closures that build the condition from a site's
expressions.

Units: terms that are added, compared or put into min and max must count the same thing.  An integer takes
the unit of what it stands beside.  A product of elements and bytes/element is in bytes; other products need
a number.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from symalloc.size import condition as cond
from symalloc.size.choice import maximum, minimum
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr, constant, floordiv, mod, round_up
from symalloc.size.units import Unit, UnitError, multiply_units

__all__ = ["Constraint", "LanguageError", "Quantity", "compile_constraint", "compile_quantity", "nearest"]

Values: TypeAlias = Mapping[str, Expr]
MAX_EXPONENT = 64


class LanguageError(ValueError):
    """The text is not in the language; `problem` says why, `suggestion` what was probably meant (or None)."""

    def __init__(self, problem: str, suggestion: str | None = None) -> None:
        super().__init__(problem)
        self.problem, self.suggestion = problem, suggestion


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A compiled size expression.

    `unit` is None for an integer, which takes any unit.  `names` are the quantities that `compute` needs; it
    raises KeyError where one has no value.
    """

    node: ast.expr
    unit: Unit | None
    names: frozenset[str]
    compute: Callable[[Values], Expr]

    @property
    def text(self) -> str:
        """The expression as it was written."""
        return _source(self.node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A compiled condition; `names` are the quantities that `build` needs, else it raises KeyError."""

    text: str
    names: frozenset[str]
    build: Callable[[Values], Condition]


def compile_constraint(text: str, quantities: Mapping[str, Unit]) -> Constraint:
    """The condition that `text` writes over `quantities`; raises LanguageError."""
    return _Compiler(text, quantities).condition(_parse(text))


def compile_quantity(text: str, quantities: Mapping[str, Unit]) -> Quantity:
    """The size that `text` writes over `quantities`; raises LanguageError."""
    return _Compiler(text, quantities).quantity(_parse(text))


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The entry of `known` that `word` was probably meant to be, or None."""
    found = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return found[0] if found else None


def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise LanguageError(f"cannot be parsed: {error.msg} in `{text}`") from None
    except (ValueError, RecursionError, MemoryError):
        raise LanguageError("cannot be parsed") from None


_SUMS: dict[type[ast.operator], tuple[str, Callable[[Expr, Expr], Expr]]] = {
    ast.Add: ("add {right} to {left}", lambda a, b: a + b),
    ast.Sub: ("subtract {right} from {left}", lambda a, b: a - b),
}
_PRODUCTS: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Expr, Expr], Condition]] = {
    ast.Eq: cond.eq,
    ast.NotEq: cond.ne,
    ast.Lt: cond.lt,
    ast.LtE: cond.le,
    ast.Gt: cond.gt,
    ast.GtE: cond.ge,
}
_EXTREMA: dict[str, Callable[..., Expr]] = {"min": minimum, "max": maximum}
_QUOTIENTS: dict[tuple[Unit, Unit], Unit] = {
    (Unit.BYTES, Unit.BYTES_PER_ELEMENT): Unit.ELEMENTS,
    (Unit.BYTES, Unit.ELEMENTS): Unit.BYTES_PER_ELEMENT,
}


class _Compiler:
    def __init__(self, text: str, quantities: Mapping[str, Unit]) -> None:
        self.text, self.quantities = text, quantities

    # -- sizes --------------------------------------------------------------------------------

    def quantity(self, node: ast.expr) -> Quantity:
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return _literal(node, value)
            case ast.Name() | ast.Attribute():
                return self.name(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.quantity(operand)
                return _combined(node, inner.unit, (inner,), lambda a: -a)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return _power(node, left, right)
            case ast.BinOp(left=left, op=operator, right=right):
                return self.operation(node, operator, self.quantity(left), self.quantity(right))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self.call(node, name, [self.quantity(a) for a in args])
            case ast.Compare() | ast.BoolOp():
                raise LanguageError(f"`{_source(node)}` is a condition where a size is expected")
        raise LanguageError(f"`{_source(node)}` is not part of the constraint language")

    def name(self, node: ast.expr) -> Quantity:
        name = _source(node)
        unit = self.quantities.get(name)
        if unit is None:
            known = ", ".join(self.quantities) or "no quantities"
            problem = f"unknown name `{name}`; this site offers {known}"
            raise LanguageError(problem, nearest(name, list(self.quantities)))
        return Quantity(node=node, unit=unit, names=frozenset((name,)), compute=lambda values: values[name])

    def operation(self, node: ast.expr, operator: ast.operator, left: Quantity, right: Quantity) -> Quantity:
        kind = type(operator)
        if kind in _SUMS:
            verb, compute = _SUMS[kind]
            return _combined(node, _common(verb, left, right), (left, right), compute)
        if kind is ast.Div:
            raise LanguageError("`/` is not a size operation; use `//`")
        if kind not in _PRODUCTS:
            raise LanguageError(f"`{_source(node)}` is not part of the constraint language")
        if kind is not ast.Mult and _constant(right) == 0:
            raise LanguageError(f"`{_source(node)}` divides by zero")
        return _combined(node, _UNITS[kind](left, right), (left, right), _PRODUCTS[kind])

    def call(self, node: ast.expr, name: str, arguments: list[Quantity]) -> Quantity:
        if name in _EXTREMA and len(arguments) >= 2:
            unit = _all_alike(name, arguments)
            return _combined(node, unit, tuple(arguments), _EXTREMA[name])
        if name == "round_up" and len(arguments) == 2:
            return _rounded(node, arguments[0], arguments[1])
        known = ["max", "min", "round_up"]
        if name in known:
            raise LanguageError(f"`{name}` takes {'two' if name == 'round_up' else 'two or more'} arguments")
        raise LanguageError(f"unknown function `{name}`; known are {', '.join(known)}", nearest(name, known))

    # -- conditions --------------------------------------------------------------------------------

    def condition(self, node: ast.expr) -> Constraint:
        match node:
            case ast.BoolOp(op=operator, values=values):
                join = cond.conjunction if isinstance(operator, ast.And) else cond.disjunction
                return self.joined([self.condition(v) for v in values], join)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.condition(operand)
                return self.built(inner.names, lambda values: cond.negate(inner.build(values)))
            case ast.Compare():
                return self.comparisons(node)
        raise LanguageError(f"`{_source(node)}` is a size where a condition is expected")

    def comparisons(self, node: ast.Compare) -> Constraint:
        sides = [self.quantity(side) for side in (node.left, *node.comparators)]
        parts = [self.comparison(op, a, b) for op, a, b in zip(node.ops, sides, sides[1:], strict=False)]
        return parts[0] if len(parts) == 1 else self.joined(parts, cond.conjunction)

    def comparison(self, operator: ast.cmpop, left: Quantity, right: Quantity) -> Constraint:
        compare = _COMPARISONS.get(type(operator))
        if compare is None:
            raise LanguageError(f"only == != < <= > >= compare sizes, in `{self.text}`")
        _common("compare {left} with {right}", left, right)
        a, b = left.compute, right.compute
        return self.built(left.names | right.names, lambda values: compare(a(values), b(values)))

    def joined(self, parts: list[Constraint], join: Callable[..., Condition]) -> Constraint:
        builders = [part.build for part in parts]
        names = frozenset().union(*(part.names for part in parts))
        return self.built(names, lambda values: join(build(values) for build in builders))

    def built(self, names: frozenset[str], build: Callable[[Values], Condition]) -> Constraint:
        return Constraint(text=self.text, names=names, build=build)


def _source(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return f"{owner}.{name}"
    return ast.unparse(node)  # slow: only for messages


def _constant(quantity: Quantity) -> int | None:
    return None if quantity.names else quantity.compute({}).as_constant


def _literal(node: ast.expr, value: int) -> Quantity:
    expr = constant(value)
    return Quantity(node=node, unit=None, names=frozenset(), compute=lambda _: expr)


def _power(node: ast.expr, base: ast.expr, exponent: ast.expr) -> Quantity:
    match base, exponent:
        case ast.Constant(value=int(b)), ast.Constant(value=int(e)) if 0 <= e <= MAX_EXPONENT:
            return _literal(node, b**e)
    raise LanguageError(f"`{_source(node)}`: a power needs two integers, such as 2**63")


def _combined(
    node: ast.expr, unit: Unit | None, parts: tuple[Quantity, ...], combine: Callable[..., Expr]
) -> Quantity:
    names = frozenset().union(*(part.names for part in parts))
    if len(parts) == 2:
        a, b = parts[0].compute, parts[1].compute
        return Quantity(node=node, unit=unit, names=names, compute=lambda v: combine(a(v), b(v)))
    computes = [part.compute for part in parts]
    return Quantity(node=node, unit=unit, names=names, compute=lambda v: combine(*(c(v) for c in computes)))


def _rounded(node: ast.expr, value: Quantity, multiple: Quantity) -> Quantity:
    step = _constant(multiple)
    if step is None or step < 1:
        raise LanguageError(f"`{_source(node)}`: round_up needs a positive integer as its multiple")
    return _combined(node, value.unit, (value,), lambda v: round_up(v, step))


# -- units --------------------------------------------------------------------------------


def _described(quantity: Quantity) -> str:
    return f"`{quantity.text}` is in {quantity.unit}" if quantity.unit else f"`{quantity.text}` is an integer"


def _common(verb: str, left: Quantity, right: Quantity) -> Unit | None:
    """The unit that both share; raises LanguageError naming both operands."""
    if left.unit is None or right.unit is None or left.unit is right.unit:
        return left.unit or right.unit
    what = verb.format(left=left.unit, right=right.unit)
    hint = "; multiply by itemsize" if {left.unit, right.unit} == {Unit.BYTES, Unit.ELEMENTS} else ""
    raise LanguageError(f"cannot {what}: {_described(left)}, {_described(right)}{hint}")


def _all_alike(name: str, arguments: Sequence[Quantity]) -> Unit | None:
    first, *others = sorted(arguments, key=lambda q: q.unit is None)
    for other in others:
        _common(f"take the {name} of {{left}} and {{right}}", first, other)
    return first.unit


def _times(left: Quantity, right: Quantity) -> Unit | None:
    if left.unit is None or right.unit is None:
        return left.unit or right.unit
    try:
        return multiply_units(left.unit, right.unit)
    except UnitError as error:
        raise LanguageError(f"{error}: {_described(left)}, {_described(right)}") from None


def _divided(left: Quantity, right: Quantity) -> Unit | None:
    if right.unit is None or right.unit is Unit.NUMBER:
        return left.unit
    if left.unit is right.unit:
        return Unit.NUMBER
    found = _QUOTIENTS.get((left.unit, right.unit)) if left.unit else None
    if found is None:
        divided = left.unit or "an integer"
        raise LanguageError(
            f"cannot divide {divided} by {right.unit}: {_described(left)}, {_described(right)}"
        )
    return found


def _remainder(left: Quantity, right: Quantity) -> Unit | None:
    if right.unit is Unit.NUMBER:
        return left.unit
    return _common("take {left} modulo {right}", left, right)


_UNITS: dict[type[ast.operator], Callable[[Quantity, Quantity], Unit | None]] = {
    ast.Mult: _times,
    ast.FloorDiv: _divided,
    ast.Mod: _remainder,
}
