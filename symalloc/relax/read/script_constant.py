"""Constants at the top of a script (`N = 128`, `SHAPE = (4, N * 2)`), evaluated without running the file."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

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
    if isinstance(node, ast.Constant):
        return _literal(node)
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(evaluate(item, known) for item in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _negated(evaluate(node.operand, known))
    if isinstance(node, ast.BinOp) and type(node.op) in _NUMERIC:
        left, right = (_integer(evaluate(side, known)) for side in (node.left, node.right))
        return _apply(type(node.op), left, right)
    raise NotConstantError


def _literal(node: ast.Constant) -> object:
    if isinstance(node.value, str | int | float | bool | None):
        return node.value
    raise NotConstantError


def _negated(value: object) -> object:
    return -value if isinstance(value, float) else -_integer(value)


def _integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LIMIT:
        return value
    raise NotConstantError


def _apply(kind: type[ast.operator], left: int, right: int) -> int:
    try:
        return _NUMERIC[kind](left, right)
    except ZeroDivisionError as error:
        raise NotConstantError from error
