"""Names of a script: those that a function binds, and from where on; and constants at the top of the file."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

Position: TypeAlias = tuple[int, int]  # line, column
Scope: TypeAlias = dict[str, Position]  # name -> the first place where it is bound


STATEMENT_HOLDERS = (ast.stmt, ast.excepthandler, ast.match_case)


def position(node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> Position:
    """The line and column at which `node` begins."""
    return node.lineno, node.col_offset


def function_scope(node: ast.FunctionDef) -> Scope:
    """The names that `node` binds: parameters, symbols quoted in annotations, assignments, loops, `with`,
    functions.

    A name is bound from the end of what binds it.
    """
    scope: Scope = {}
    for name, where in (*_parameters(node), *_bound(node.body)):
        scope[name] = min(where, scope.get(name, where))
    return scope


def _end(node: ast.expr | ast.stmt | ast.arg) -> Position:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _parameters(node: ast.FunctionDef) -> Iterator[tuple[str, Position]]:
    for parameter in getattr(node, "type_params", ()):
        yield parameter.name, position(parameter)
    for argument in node.args.args:
        yield argument.arg, _end(argument)
        if argument.annotation is not None:
            yield from ((name, _end(argument)) for name in _quoted_symbols(argument.annotation))


def _quoted_symbols(annotation: ast.expr) -> Iterator[str]:
    """Identifiers in the strings of a parameter's annotation: `R.Tensor(("m", "2 * n"))` defines symbols."""
    for node in ast.walk(annotation):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        try:
            inside = ast.parse(node.value.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        roots = {
            id(n.value) for n in ast.walk(inside) if isinstance(n, ast.Attribute)
        }  # the T of `T.int64(2)`
        yield from (n.id for n in ast.walk(inside) if isinstance(n, ast.Name) and id(n) not in roots)


def _bound(body: list[ast.stmt]) -> Iterator[tuple[str, Position]]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            yield statement.name, position(statement)
            continue
        where = _bound_from(statement)
        yield from ((name, where) for name in stored_names(statement))
        for inner in ("body", "orelse"):
            yield from _bound(getattr(statement, inner, []))


def _bound_from(statement: ast.stmt) -> Position:
    if isinstance(statement, ast.For):
        return _end(statement.iter)
    if isinstance(statement, ast.With):
        return _end(statement.items[-1].context_expr)
    return _end(statement)


def stored_names(statement: ast.stmt) -> Iterator[str]:
    """Names that the statement itself binds (not those of statements below it)."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        pending.extend(c for c in ast.iter_child_nodes(node) if not isinstance(c, STATEMENT_HOLDERS))


_LIMIT = 1 << 256  # larger integers are no sizes, and cost time and memory
_NUMERIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class NotConstantError(Exception):
    """The expression is no constant of the kinds that are evaluated."""


def evaluate(node: ast.expr, known: Mapping[str, object]) -> object:
    """The value of `node`: numbers, strings, True/False/None, tuples and lists of these, integer arithmetic,
    and the names in `known`.  Raises NotConstantError for anything else.
    """
    match node:
        case ast.Constant(value=str() | int() | float() | None):
            return node.value
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.Tuple() | ast.List():
            return tuple(evaluate(item, known) for item in node.elts)
        case ast.UnaryOp(op=ast.USub()):
            value = evaluate(node.operand, known)
            return -value if isinstance(value, float) else -_integer(value)
        case ast.BinOp() if type(node.op) in _NUMERIC:
            left, right = (_integer(evaluate(side, known)) for side in (node.left, node.right))
            return _apply(type(node.op), left, right)
    raise NotConstantError


def _integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LIMIT:
        return value
    raise NotConstantError


def _apply(kind: type[ast.operator], left: int, right: int) -> int:
    try:
        return _NUMERIC[kind](left, right)
    except ZeroDivisionError as error:
        raise NotConstantError from error
