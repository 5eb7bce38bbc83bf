"""Sizes evaluated at a binding where some of them may not be known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from symalloc.size.expr import Expr


def evaluated(expr: Expr | None, binding: Mapping[str, int]) -> int | None:
    """The value; None where the expression is not known, has another symbol, or divides by zero."""
    if expr is None or not expr.symbols <= binding.keys():
        return None
    try:
        return expr.evaluate(binding)
    except ZeroDivisionError:
        return None


def total(exprs: Iterable[Expr | None], binding: Mapping[str, int]) -> int | None:
    """The sum of the values; None where one of them is not known."""
    return combined(sum, (evaluated(expr, binding) for expr in exprs))


def highest(exprs: Iterable[Expr | None], binding: Mapping[str, int]) -> int | None:
    """The largest value, 0 of nothing; None where one of them is not known."""
    return combined(partial(max, default=0), (evaluated(expr, binding) for expr in exprs))


def combined(combine: Callable[[Iterable[int]], int], values: Iterable[int | None]) -> int | None:
    """Return `combine` of the values; None where one of them is not known."""
    found = tuple(values)
    known = [value for value in found if value is not None]
    return combine(known) if len(known) == len(found) else None
