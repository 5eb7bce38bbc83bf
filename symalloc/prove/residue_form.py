"""Expressions in one symbol as polynomials of a quotient: with `n = step * q + residue`, divisions by
divisors of the period fold away.
"""

from __future__ import annotations

from symalloc.size.expr import Atom, Expr, FloorDiv, Mod, Symbol

__all__ = ["MAX_DEGREE", "coefficients"]

MAX_DEGREE = 8
Coefficients = list[int]


def coefficients(expr: Expr, step: int, residue: int) -> Coefficients | None:
    """The coefficients, by power of q, of `expr` at `step * q + residue`.

    None where a division does not fold, a choice is left, or the degree is too high.
    """
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
    while total and not total[-1]:
        total.pop()
    return total


def _atom(atom: Atom, step: int, residue: int) -> Coefficients | None:
    if isinstance(atom, Symbol):
        return [residue, step]
    if not isinstance(atom, FloorDiv | Mod):
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
