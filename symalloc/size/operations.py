"""The operations on size expressions that are no polynomials, folded as far as is exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import gcd
from typing import TYPE_CHECKING

from symalloc.size.atoms import Atom, FloorDiv, Max, Min, Mod, Select, Symbol
from symalloc.size.expr import ONE, Expr, ExprLike, constant, from_atom, lift

if TYPE_CHECKING:
    from symalloc.size.condition import Condition

__all__ = [
    "ceildiv",
    "floordiv",
    "maximum",
    "minimum",
    "mod",
    "product",
    "rebuild",
    "round_up",
    "select",
]


def floordiv(numerator: ExprLike, denominator: ExprLike) -> Expr:
    """`numerator // denominator`; terms that the divisor divides exactly leave the division, and a common
    factor of the others and the divisor is cancelled: `(4*m) // 256` is `m // 64`.
    """
    numerator, denominator = lift(numerator), lift(denominator)
    divisor = denominator.as_constant
    if divisor == 1:
        return numerator
    if divisor is None or divisor <= 0:
        value = numerator.as_constant
        if divisor is not None and divisor < 0 and value is not None:
            return constant(value // divisor)
        return from_atom(FloorDiv(numerator, denominator))
    whole = {m: c // divisor for m, c in numerator.terms.items() if c % divisor == 0 or not m}
    rest = {m: (c % divisor if not m else c) for m, c in numerator.terms.items() if c % divisor}
    outside = Expr({m: c for m, c in whole.items() if c})
    if not any(rest):
        return outside
    common = gcd(divisor, *rest.values())
    reduced = Expr({m: c // common for m, c in rest.items()})
    return outside + from_atom(FloorDiv(reduced, constant(divisor // common)))


def mod(numerator: ExprLike, denominator: ExprLike) -> Expr:
    """`numerator % denominator`; a constant divisor reduces the coefficients, and a factor common to all of
    them and the divisor leaves the remainder: `(4*m) % 256` is `4 * (m % 64)`.
    """
    numerator, denominator = lift(numerator), lift(denominator)
    divisor = denominator.as_constant
    if divisor is None or divisor <= 0:
        value = numerator.as_constant
        if divisor is not None and divisor < 0 and value is not None:
            return constant(value % divisor)
        return from_atom(Mod(numerator, denominator))
    rest = {m: c % divisor for m, c in numerator.terms.items() if c % divisor}
    if not any(rest):
        return constant(rest.get((), 0))
    common = gcd(divisor, *rest.values())
    reduced = Expr({m: c // common for m, c in rest.items()})
    return from_atom(Mod(reduced, constant(divisor // common))) * common


def ceildiv(numerator: ExprLike, denominator: ExprLike) -> Expr:
    """`-(-numerator // denominator)` for a positive denominator, written `(numerator + denominator - 1) //
    denominator`.
    """
    return floordiv(lift(numerator) + lift(denominator) - 1, denominator)


def round_up(value: ExprLike, multiple: int) -> Expr:
    """`value` rounded up to the next multiple of `multiple` (a positive constant)."""
    return ceildiv(value, multiple) * multiple


def minimum(*operands: ExprLike) -> Expr:
    """The least operand; nested minima are flattened, equal operands and constants folded."""
    return _extremum(Min, min, operands)


def maximum(*operands: ExprLike) -> Expr:
    """The greatest operand; nested maxima are flattened, equal operands and constants folded."""
    return _extremum(Max, max, operands)


def select(condition: Condition, then: ExprLike, otherwise: ExprLike) -> Expr:
    """`then` where `condition` holds, else `otherwise`; folded where the condition is constant."""
    then, otherwise = lift(then), lift(otherwise)
    value = condition.as_bool
    if value is not None:
        return then if value else otherwise
    return then if then == otherwise else from_atom(Select(condition, then, otherwise))


def rebuild(
    atom: Atom, change: Callable[[Expr], Expr], change_condition: Callable[[Condition], Condition]
) -> Expr:
    """`atom` with its operands changed; a symbol has none."""
    match atom:
        case Symbol():
            return from_atom(atom)
        case FloorDiv(numerator=above, denominator=below):
            return floordiv(change(above), change(below))
        case Mod(numerator=above, denominator=below):
            return mod(change(above), change(below))
        case Min(operands=operands):
            return minimum(*map(change, operands))
        case Max(operands=operands):
            return maximum(*map(change, operands))
        case Select(condition=test, then=then, otherwise=otherwise):
            return select(change_condition(test), change(then), change(otherwise))


def product(factors: Iterable[ExprLike]) -> Expr:
    """The product of `factors`; 1 for none."""
    result = ONE
    for factor in factors:
        result = result * factor
    return result


def _extremum(kind: type[Min] | type[Max], pick: Callable[..., int], operands: tuple[ExprLike, ...]) -> Expr:
    if not operands:
        raise ValueError(f"{kind.__name__.lower()} of nothing")
    flat: dict[Expr, None] = {}
    folded: int | None = None
    for operand in map(lift, operands):
        for part in _flatten(kind, operand):
            value = part.as_constant
            if value is None:
                flat[part] = None
            else:
                folded = value if folded is None else pick(folded, value)
    if folded is not None:
        flat[constant(folded)] = None
    if len(flat) == 1:
        return next(iter(flat))
    return from_atom(kind(tuple(sorted(flat, key=lambda e: e.key))))


def _flatten(kind: type[Min] | type[Max], operand: Expr) -> tuple[Expr, ...]:
    atom = operand.as_atom
    return atom.operands if isinstance(atom, kind) else (operand,)
