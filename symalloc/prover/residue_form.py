"""Expressions in one symbol as polynomials of a quotient: with `n = step * q + residue`, divisions by
divisors of the period fold away.
"""

from __future__ import annotations

from functools import lru_cache

from symalloc.size.expr import Atom, Division, Expr, FloorDiv, Symbol

MAX_DEGREE = 8
Coefficients = list[int]


def coefficients(expr: Expr, step: int, residue: int) -> Coefficients | None:
    """The coefficients, by power of q, of `expr` at `step * q + residue`.

    None where a division does not fold, a choice is left, or the degree is too high.
    """
    rise = _rise(expr, step)
    if rise is not None:
        line = [expr.evaluate(dict.fromkeys(expr.symbols, residue)), rise]
        return _trimmed(line)
    total: Coefficients = []
    for monomial, coefficient in expr.terms.items():
        term = [coefficient]
        for atom, power in monomial:
            factor = _atom(atom, step, residue)
            if factor is None or (len(term) - 1) + (len(factor) - 1) * power > MAX_DEGREE:
                return None
            for _ in range(power):
                term = _times(term, factor)
        total = _plus(total, term)
    return _trimmed(total)


@lru_cache(maxsize=1024)
def _rise(expr: Expr, step: int) -> int | None:
    """The growth of `expr` when its symbol grows by `step`; None where that depends on the symbol, or may."""
    total = 0
    for monomial, coefficient in expr.terms.items():
        if not monomial:
            continue
        if len(monomial) > 1 or monomial[0][1] > 1:
            return None
        rise = _atom_rise(monomial[0][0], step)
        if rise is None:
            return None
        total += coefficient * rise
    return total


def _atom_rise(atom: Atom, step: int) -> int | None:
    if isinstance(atom, Symbol):
        return step
    if not isinstance(atom, Division):
        return None
    divisor, above = atom.denominator.as_constant, _rise(atom.numerator, step)
    if divisor is None or divisor < 1 or above is None or above % divisor:
        return None
    return above // divisor if isinstance(atom, FloorDiv) else 0


def _trimmed(polynomial: Coefficients) -> Coefficients:
    while polynomial and not polynomial[-1]:
        polynomial.pop()
    return polynomial


def _atom(atom: Atom, step: int, residue: int) -> Coefficients | None:
    if isinstance(atom, Symbol):
        return [residue, step]
    if not isinstance(atom, Division):
        return None
    divisor = atom.denominator.as_constant
    above = coefficients(atom.numerator, step, residue)
    if divisor is None or divisor < 1 or above is None or any(c % divisor for c in above[1:]):
        return None
    if isinstance(atom, FloorDiv):
        return [c // divisor for c in above]  # only the constant is rounded
    return [above[0] % divisor] if above else []


def _times(left: Coefficients, right: Coefficients) -> Coefficients:
    result = [0] * (len(left) + len(right) - 1) if left and right else []
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            result[i + j] += a * b
    return result


def _plus(left: Coefficients, right: Coefficients) -> Coefficients:
    if len(left) < len(right):
        left, right = right, left
    return [a + right[i] if i < len(right) else a for i, a in enumerate(left)]
