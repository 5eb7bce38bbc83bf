"""The reader of sympy's expressions and Booleans.  Importing this imports sympy.

Floor division is `floor(a/b)`, a choice is `Piecewise`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from math import lcm
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
    (a, b), (c, d) = _ratio(value.lhs), _ratio(value.rhs)
    if b.as_constant is None or d.as_constant is None:
        raise _refused(value, "it divides by a symbol outside floor")
    return build(a * d, c * b)


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


def _ratio(value: Any) -> tuple[Expr, Expr]:
    """A numerator and a denominator of `value`, which may be a fraction; constant denominators are > 0."""
    if value.is_Rational:
        return constant(value.p), constant(value.q)
    if value.is_Pow and value.exp.is_Integer and value.exp < 0:
        above, below = _ratio(1 / value)
        return below, above
    parts = list(map(_ratio, value.args)) if value.is_Add or value.is_Mul else []
    if value.is_Mul:
        return product(above for above, _ in parts), product(below for _, below in parts)
    if value.is_Add:
        return reduce(_sum, parts)
    if isinstance(value, sympy.Piecewise):
        tops, bottoms = zip(*(_ratio(then) for then, _ in value.args), strict=True)
        return _choice(value, tops), _choice(value, bottoms)
    return from_sympy(value), constant(1)


def _sum(left: tuple[Expr, Expr], right: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    (a, b), (c, d) = left, right
    if b == d:
        return a + c, b
    p, q = b.as_constant, d.as_constant
    if p is None or q is None:
        return a * d + c * b, b * d
    common = lcm(p, q)
    return a * (common // p) + c * (common // q), constant(common)


def _choice(value: Any, values: Iterable[Expr]) -> Expr:
    """A `Piecewise` with `values` in place of its own."""
    *others, result = values
    *tests, always = (test for _, test in value.args)
    if always != sympy.true:
        raise _refused(value, "the last case must be for all else")
    for then, test in zip(reversed(others), reversed(tests), strict=True):
        result = select(condition_from_sympy(test), then, result)
    return result


_READERS: tuple[tuple[Any, Callable[[Any], Expr]], ...] = (
    (sympy.Add, lambda v: sum(map(from_sympy, v.args), constant(0))),
    (sympy.Mul, _product),
    (sympy.Pow, _power),
    (sympy.floor, lambda v: floordiv(*_ratio(v.args[0]))),
    (sympy.ceiling, lambda v: -floordiv(*_ratio(-v.args[0]))),
    (sympy.Mod, lambda v: mod(from_sympy(v.args[0]), from_sympy(v.args[1]))),
    (sympy.Min, lambda v: minimum(*map(from_sympy, v.args))),
    (sympy.Max, lambda v: maximum(*map(from_sympy, v.args))),
    (sympy.Piecewise, lambda v: _choice(v, [from_sympy(then) for then, _ in v.args])),
)
_RELATIONS: tuple[tuple[Any, Callable[[Expr, Expr], Condition]], ...] = (
    (sympy.Le, cond.le),
    (sympy.Lt, cond.lt),
    (sympy.Ge, cond.ge),
    (sympy.Gt, cond.gt),
    (sympy.Eq, cond.eq),
    (sympy.Ne, cond.ne),
)
