"""The reader of sympy's expressions and Booleans.  Importing this imports sympy.

Floor division is `floor(a/b)`, a choice is `Piecewise`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from sympy.logic import boolalg

from symalloc.size import condition as cond
from symalloc.size.choice import maximum, minimum, select
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr, constant, floordiv, mod, product, symbol

MOST_POWER = 16
_WHOLE = "a size is a whole number: floor(n/2) rounds down"


def from_sympy(value: Any) -> Expr:
    """The size expression that `value` writes; raises ValueError for what is none (fractions …)."""
    value = sympy.sympify(value)
    if value.is_Integer:
        return constant(int(value))
    if value.is_Symbol:
        return symbol(value.name)
    for kind, read in _READERS:
        if isinstance(value, kind):
            return read(value)
    raise _refused(value, _WHOLE if value.is_number else "")


def condition_from_sympy(value: Any) -> Condition:
    """The condition that `value` writes; raises ValueError for what is none."""
    match value:
        case boolalg.BooleanTrue() | True:
            return cond.TRUE
        case boolalg.BooleanFalse() | False:
            return cond.FALSE
        case boolalg.And(args=args):
            return cond.conjunction(map(condition_from_sympy, args))
        case boolalg.Or(args=args):
            return cond.disjunction(map(condition_from_sympy, args))
        case boolalg.Not(args=(inner,)):
            return cond.negate(condition_from_sympy(inner))
        case boolalg.BooleanFunction():  # Xor, Implies, ITE …
            return condition_from_sympy(value.to_nnf(simplify=False))
    build = next((b for kind, b in _RELATIONS if isinstance(value, kind)), None)
    if build is None:
        raise ValueError(f"not a condition on sizes: {value}")
    above, below = sympy.fraction(sympy.together(value.lhs - value.rhs))
    if below.is_Integer and below != 1:  # n <= m/2
        return build(from_sympy(above), constant(0))
    return build(from_sympy(value.lhs), from_sympy(value.rhs))


def _refused(value: Any, reason: str = "") -> ValueError:
    return ValueError(f"not a size expression: {value}" + (f" ({reason})" if reason else ""))


def _product(value: Any) -> Expr:
    if value.as_coeff_Mul()[0].is_Integer:
        return product(map(from_sympy, value.args))
    raise _refused(value, _WHOLE)


def _power(value: Any) -> Expr:
    base, exponent = value.as_base_exp()
    if not (exponent.is_Integer and 0 <= exponent <= MOST_POWER):
        raise _refused(value, f"the exponent must be a natural number up to {MOST_POWER}")
    return from_sympy(base) ** int(exponent)


def _floor(value: Any) -> Expr:
    above, below = sympy.fraction(sympy.together(value.args[0]))
    return floordiv(from_sympy(above), from_sympy(below))


def _ceiling(value: Any) -> Expr:
    above, below = sympy.fraction(sympy.together(value.args[0]))
    return -floordiv(-from_sympy(above), from_sympy(below))


def _piecewise(value: Any) -> Expr:
    (last, always), *others = reversed(value.args)
    if always != sympy.true:
        raise _refused(value, "the last case must be for all else")
    result = from_sympy(last)
    for then, test in others:
        result = select(condition_from_sympy(test), from_sympy(then), result)
    return result


_READERS: tuple[tuple[Any, Callable[[Any], Expr]], ...] = (
    (sympy.Add, lambda v: sum(map(from_sympy, v.args), constant(0))),
    (sympy.Mul, _product),
    (sympy.Pow, _power),
    (sympy.floor, _floor),
    (sympy.ceiling, _ceiling),
    (sympy.Mod, lambda v: mod(from_sympy(v.args[0]), from_sympy(v.args[1]))),
    (sympy.Min, lambda v: minimum(*map(from_sympy, v.args))),
    (sympy.Max, lambda v: maximum(*map(from_sympy, v.args))),
    (sympy.Piecewise, _piecewise),
)
_RELATIONS: tuple[tuple[Any, Callable[[Expr, Expr], Condition]], ...] = (
    (sympy.Le, cond.le),
    (sympy.Lt, cond.lt),
    (sympy.Ge, cond.ge),
    (sympy.Gt, cond.gt),
    (sympy.Eq, cond.eq),
    (sympy.Ne, cond.ne),
)
