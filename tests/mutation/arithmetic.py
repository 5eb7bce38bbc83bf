"""Exact integer evaluation of TVM's scalar expressions at one binding."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["UndefinedError", "evaluate"]

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Min": min,
    "Max": max,
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "And": lambda a, b: bool(a) and bool(b),
    "Or": lambda a, b: bool(a) or bool(b),
}


class UndefinedError(Exception):
    """The expression has no value here: a symbol without one, or a division by zero."""


def evaluate(expression: Any, binding: Mapping[Any, int]) -> int:
    """The value of `expression`; UndefinedError, or TypeError for an unknown node.

    Symbols are bound by name, variables of the program that hold a number by themselves: names repeat.
    """
    if isinstance(expression, int):
        return expression
    kind = type(expression).__name__
    if kind == "IntImm":
        return int(expression.value)
    if kind == "Var":
        if expression in binding:
            return binding[expression]
        if expression.name not in binding:
            raise UndefinedError(f"symbol {expression.name} has no value")
        return binding[expression.name]
    if kind in _BINARY:
        left, right = evaluate(expression.a, binding), evaluate(expression.b, binding)
        if kind.startswith("Floor") and right == 0:
            raise UndefinedError("division by zero")
        return int(_BINARY[kind](left, right))
    if kind == "Not":
        return int(not evaluate(expression.a, binding))
    if kind == "Cast":
        return evaluate(expression.value, binding)
    if kind == "Select":
        chosen = expression.true_value if evaluate(expression.condition, binding) else expression.false_value
        return evaluate(chosen, binding)
    if kind == "Call" and expression.op.name.endswith("if_then_else"):
        condition, then, otherwise = expression.args
        return evaluate(then if evaluate(condition, binding) else otherwise, binding)
    raise TypeError(f"no value for a {kind}: {expression}")
