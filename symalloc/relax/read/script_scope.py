"""Which names a function of a script binds, and from where on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeAlias

Position: TypeAlias = tuple[int, int]  # line, column
Scope: TypeAlias = dict[str, Position]  # name -> the first place where it is bound


def position(node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> Position:
    """Where `node` begins."""
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
        yield from ((name, where) for name in _targets(statement))
        for inner in ("body", "orelse"):
            yield from _bound(getattr(statement, inner, []))


def _bound_from(statement: ast.stmt) -> Position:
    if isinstance(statement, ast.For):
        return _end(statement.iter)
    if isinstance(statement, ast.With):
        return _end(statement.items[-1].context_expr)
    return _end(statement)


def _targets(statement: ast.stmt) -> Iterator[str]:
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign | ast.For):
        targets = [statement.target]
    elif isinstance(statement, ast.With):
        targets = [item.optional_vars for item in statement.items if item.optional_vars is not None]
    for target in targets:
        yield from (
            n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        )
