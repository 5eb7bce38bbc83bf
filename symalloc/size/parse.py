"""The parser of size expressions and conditions, in Python's syntax.

Accepted: integers, names, `+ - * // % **` (a constant exponent), unary minus, `min(..)`, `max(..)`,
`ceildiv(a, b)`, `round_up(a, c)`, `a if c else b`, comparisons (chained too), `and`, `or`, `not`.
`Min`/`Max` are read as `min`/`max`.

A divisor carries the obligation to be at least 1.  Where arithmetic cancels a division (`n//k == n//k`), a
condition that is read states the obligation (`symalloc.size.choice`); a size does not.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import takewhile
from typing import TYPE_CHECKING, SupportsIndex, TypeAlias, Union

from symalloc.errors import nearest, shown
from symalloc.size import condition as cond
from symalloc.size.choice import Select, defined, evaluated_atoms, maximum, minimum, select
from symalloc.size.condition import Condition
from symalloc.size.expr import (
    ONE,
    ZERO,
    Expr,
    FloorDiv,
    ceildiv,
    constant,
    floordiv,
    from_atom,
    mod,
    round_up,
    symbol,
)

if TYPE_CHECKING:
    from sympy.logic.boolalg import Boolean

ConditionLike: TypeAlias = Union[str, Condition, "Boolean"]
"""A condition as callers give it: a text, a relation or Boolean of sympy, or one of our own."""
MAX_EXPONENT = 4096
MAX_LENGTH = 20_000


class SizeSyntaxError(ValueError):
    """The text is not a size expression.

    `text`, `column` (from 0) and `problem` say what is wrong where, `suggestion` what was probably meant.
    """

    def __init__(self, text: str, column: int, problem: str, suggestion: str | None = None) -> None:
        super().__init__(f"{problem}, at column {column + 1} of `{text}`")
        self.text, self.column, self.problem, self.suggestion = text, column, problem, suggestion


@lru_cache(maxsize=4096)
def parse_expr(text: str) -> Expr:
    """The expression that `text` writes; raises SizeSyntaxError."""
    return SizeParser(text).expr(parse_body(text))


@lru_cache(maxsize=4096)
def parse_condition(text: str) -> Condition:
    """The condition that `text` writes; raises SizeSyntaxError."""
    return SizeParser(text).condition(parse_body(text))


def is_sympy(value: object) -> bool:
    """True where `value` comes from sympy, which is not imported to find out."""
    return any(kind.__module__.partition(".")[0] == "sympy" for kind in type(value).__mro__)


def as_expr(value: object) -> Expr:
    """The size that a caller gives as text, a whole number, an expression of sympy, or as it is.

    Raises ValueError (SizeSyntaxError for a text), which says what is wrong.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return parse_expr(value)
    if is_sympy(value):
        from symalloc.size.sympy_form import from_sympy

        return from_sympy(value)
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        kind = type(value).__name__
        raise ValueError(f"not a size but of type {kind}: {shown(value)}; give a text, a number or sympy's")
    return constant(value.__index__())


def as_condition(value: object) -> Condition:
    """The condition that a caller gives as text, a relation or Boolean of sympy, or as it is.

    Raises ValueError (SizeSyntaxError for a text), which says what is wrong.
    """
    if isinstance(value, Condition):
        return value
    if isinstance(value, str):
        return parse_condition(value)
    if not is_sympy(value):
        kind = type(value).__name__
        raise ValueError(
            f"not a condition but of type {kind}: {shown(value)}; give a text or a sympy relation"
        )
    from symalloc.size.sympy_form import condition_from_sympy

    return condition_from_sympy(value)


def symbols_in(text: str) -> frozenset[str]:
    """The names that `text` writes, also those that arithmetic cancels; raises SizeSyntaxError."""
    tree = parse_body(text)
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name)) - called


def parse_body(text: str) -> ast.expr:
    """The syntax tree of `text`; raises SizeSyntaxError."""
    if len(text) > MAX_LENGTH:
        raise SizeSyntaxError(text[:40] + "…", 0, f"longer than {MAX_LENGTH} characters")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        indent = len(text) - len(text.lstrip())
        inside = bool(error.offset) and error.lineno in (None, 1)
        column = (error.offset or 1) - 1 + indent if inside else len(text)
        raise SizeSyntaxError(text, column, f"syntax error: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise SizeSyntaxError(text[:40], 0, "cannot be parsed") from None


_ARITHMETIC: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}
_DIVISIONS = (ast.FloorDiv, ast.Mod)
_MISTAKEN: dict[type[ast.operator], str] = {
    ast.Div: "`/` is not a size operation; use `//`",
    ast.BitXor: "`^` is not a size operation; use `**` for a power",
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Expr, Expr], Condition]] = {
    ast.Eq: cond.eq,
    ast.NotEq: cond.ne,
    ast.Lt: cond.lt,
    ast.LtE: cond.le,
    ast.Gt: cond.gt,
    ast.GtE: cond.ge,
}


class SizeParser:
    """Builds expressions and conditions from a syntax tree.

    A language with other names overrides `name`.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._in_test = False  # what is read decides between two sizes
        self._guards: tuple[Condition, ...] = ()  # under which it is evaluated
        self._divided: list[tuple[tuple[Condition, ...], FloorDiv | Select]] = []  # under such, what divides

    def fail(self, node: ast.expr, problem: str, suggestion: str | None = None) -> SizeSyntaxError:
        """The error that `node` is not what it should be."""
        indent = len(self.text) - len(self.text.lstrip())
        return SizeSyntaxError(self.text, node.col_offset + indent, problem, suggestion)

    def name(self, node: ast.Name | ast.Attribute) -> Expr:
        """The expression that a name stands for."""
        if isinstance(node, ast.Attribute):
            raise self.fail(node, "not a size expression")
        return symbol(node.id)

    def expr(self, node: ast.expr) -> Expr:
        """The size that `node` writes."""
        match node:
            case ast.Constant(value=bool()):
                raise self.fail(node, "a truth value where a size is expected")
            case ast.Constant(value=int(value)):
                return constant(value)
            case ast.Name() | ast.Attribute():
                return self.name(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.expr(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.expr(operand)
            case ast.BinOp(op=ast.Pow(), left=left, right=right):
                return self._power(node, self.expr(left), self.expr(right))
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
                return self._arithmetic(node, operator, self.expr(left), self.expr(right))
            case ast.BinOp(op=ast.Div() | ast.BitXor()):
                raise self.fail(node.right, _MISTAKEN[type(node.op)])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(test, body, orelse)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(node, name, [self.expr(a) for a in args])
            case ast.Compare() | ast.BoolOp():
                raise self.fail(node, "a condition where a size is expected")
        raise self.fail(node, "not a size expression")

    def _arithmetic(self, node: ast.expr, operator: ast.operator, left: Expr, right: Expr) -> Expr:
        if isinstance(operator, _DIVISIONS):
            divisor = right.as_constant
            if divisor is not None and divisor < 1:
                raise self.fail(node, "division by zero" if divisor == 0 else "division by a negative number")
            self._divides(FloorDiv(left, right))
        return _ARITHMETIC[type(operator)](left, right)

    def _choice(self, test: ast.expr, body: ast.expr, orelse: ast.expr) -> Expr:
        outside, self._in_test = self._in_test, True
        condition = self.condition(test)
        self._in_test = outside
        then = self._where(condition, body)
        otherwise = self._where(cond.negate(condition), orelse)
        if condition.as_bool is None:
            self._divides(Select(condition, then, otherwise))
        return select(condition, then, otherwise)

    def _where(self, guard: Condition, node: ast.expr) -> Expr:
        """The size that `node` writes, which is evaluated only where `guard` holds."""
        around, first = self._guards, len(self._divided)
        self._guards = (*around, guard)
        value = self.expr(node)
        self._guards = around
        if guard.as_bool is None:  # what the value still divides by is the choice's
            self._keep_lost(first, value)
        return value

    # -- divisions that arithmetic cancels -----------------------------------------------------------------

    def _divides(self, atom: FloorDiv | Select) -> None:
        if from_atom(atom).divisors:
            self._divided.append((self._guards, atom))

    def _keep_lost(self, first: int, *values: Expr) -> None:
        """Keep, of the divisions noted from number `first` on, those that `values` do not make."""
        made = {atom for value in values for atom in evaluated_atoms(value)}
        divisors = {atom.divisor for atom in made}
        self._divided[first:] = [
            (guards, atom)
            for guards, atom in self._divided[first:]
            if atom not in made and (isinstance(atom, Select) or atom.divisor not in divisors)
        ]

    def _power(self, node: ast.expr, base: Expr, exponent: Expr) -> Expr:
        value = exponent.as_constant
        if value is None or not 0 <= value <= (MAX_EXPONENT if base.as_constant is not None else 16):
            raise self.fail(node, "an exponent must be a small constant")
        known = base.as_constant
        return constant(known**value) if known is not None else base**value

    def _call(self, node: ast.expr, name: str, arguments: list[Expr]) -> Expr:
        match name.lower(), arguments:
            case "min", [_, *_]:
                return minimum(*arguments)
            case "max", [_, *_]:
                return maximum(*arguments)
            case "ceildiv", [numerator, denominator]:
                self._divides(FloorDiv(numerator, denominator))
                return ceildiv(numerator, denominator)
            case "round_up", [value, multiple]:
                step = multiple.as_constant
                if step is None or step < 1:
                    raise self.fail(node, "round_up needs a positive constant multiple")
                return round_up(value, step)
        known = ("ceildiv", "max", "min", "round_up")
        problem = (
            f"`{name}` with {len(arguments)} arguments is not a size function; known are {', '.join(known)}"
        )
        raise self.fail(node, problem, nearest(name, known))

    def condition(self, node: ast.expr, *, negated: bool = False) -> Condition:
        """The condition that `node` writes, or its negation."""
        match node:
            case ast.Constant(value=bool(value)):
                return cond.TRUE if value is not negated else cond.FALSE
            case ast.BoolOp(op=operator, values=values):
                readers = [partial(self.condition, value, negated=negated) for value in values]
                return self._joined(readers, every=isinstance(operator, ast.And) is not negated)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.condition(operand, negated=not negated)
            case ast.Compare():
                return self._comparison(node, negated=negated)
        raise self.fail(node, "a size where a condition is expected, such as `4*m <= 16`")

    def _joined(self, readers: Sequence[Callable[[], Condition]], *, every: bool) -> Condition:
        """All or some of the conditions that are read; a test evaluates those before one that settles it."""
        around, parts = self._guards, list[Condition]()
        for read in readers:
            parts.append(read())
            if self._in_test:
                self._guards = (*self._guards, parts[-1] if every else cond.negate(parts[-1]))
        self._guards = around
        joined = cond.conjunction(parts) if every else cond.disjunction(parts)
        if joined.as_bool is not None and self._in_test:
            before = tuple(takewhile(lambda part: part.as_bool is None, parts))
            self._divides(Select(cond.And(before) if every else cond.Or(before), ONE, ZERO))
        return joined

    def _comparison(self, node: ast.Compare, *, negated: bool) -> Condition:
        if any(type(operator) not in _COMPARISONS for operator in node.ops):
            raise self.fail(node.left, "only == != < <= > >= compare sizes")
        first, sides = len(self._divided), [self.expr(node.left)]

        def compared(operator: ast.cmpop, right: ast.expr) -> Condition:
            sides.append(self.expr(right))
            found = _COMPARISONS[type(operator)](*sides[-2:])
            self._keep_lost(first, *found.exprs)
            return found

        pairs = zip(node.ops, node.comparators, strict=True)
        joined = self._joined([partial(compared, *pair) for pair in pairs], every=True)
        condition = cond.negate(joined) if negated else joined
        if self._in_test:
            return condition
        lost, self._divided[first:] = self._divided[first:], []
        owed = (
            cond.disjunction(
                (*map(cond.negate, guards), defined(from_atom(atom), lambda n: (n.as_constant or 0) > 0))
            )
            for guards, atom in lost
        )
        return cond.conjunction((*owed, condition))
