"""Layer `equations`: polynomial equations without integer solutions, by arithmetic.

Three arguments: the equation has no solution modulo a small number; a monomial equals a constant none of
whose divisors fit the bounds; `a*x**k == b*y**k` needs `a/b` to be a k-th power unless all is zero (compare
the powers of each prime).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import gcd, prod

from symalloc.prover.bounds import Box
from symalloc.prover.factors import factor
from symalloc.size.condition import Relation
from symalloc.size.expr import Atom, Expr, Monomial, Symbol

MODULI = (4, 3, 8, 9, 5, 7, 16)
MAX_RESIDUES = 600
MAX_WAYS = 20_000


def impossible(relation: Relation, box: Box) -> bool:
    """True if `relation`, an equation between polynomials, has no solution in `box`."""
    expr = relation.expr
    if relation.operator != "==" or not expr.is_polynomial:
        return False
    return _no_power(expr, box) or _no_divisors(expr, box) or any(_no_residues(expr, m) for m in MODULI)


def _no_residues(expr: Expr, modulus: int) -> bool:
    atoms = sorted(expr.atoms)
    if modulus ** len(atoms) > MAX_RESIDUES:
        return False
    terms = [(c % modulus, [(atoms.index(a), p) for a, p in m]) for m, c in expr.terms.items()]
    terms = [t for t in terms if t[0]]
    for values in product(range(modulus), repeat=len(atoms)):
        total = sum(c * prod(pow(values[i], p, modulus) for i, p in m) for c, m in terms)
        if total % modulus == 0:
            return False
    return True


def _no_power(expr: Expr, box: Box) -> bool:
    """`a*M == b*N` with k-th powers M and N of products, one of them positive, and a/b no k-th power."""
    if len(expr.terms) != 2 or () in expr.terms:
        return False
    (left, a), (right, b) = expr.terms.items()
    factors = (*left, *right)
    k = gcd(*(power for _, power in factors))
    if k < 2 or a * b >= 0 or any(box.lower[atom.key] < 0 for atom, _ in factors):
        return False
    if not any(all(_positive(atom, box) for atom, _ in side) for side in (left, right)):
        return False  # both sides may be zero; where one is not, neither is the other
    common = gcd(a, b)
    return not (_is_power(abs(a) // common, k) and _is_power(abs(b) // common, k))


def _is_power(value: int, k: int) -> bool:
    root = 0
    for bit in reversed(range(value.bit_length() // k + 1)):
        if (root | 1 << bit) ** k <= value:
            root |= 1 << bit
    return bool(root**k == value)


def _positive(atom: Atom, box: Box) -> bool:
    return isinstance(atom, Symbol) and box.lower[atom.name] >= 1


def _no_divisors(expr: Expr, box: Box) -> bool:
    """`c * x**p * y**q * … == constant` has no positive solution in `box`."""
    equation = _monomial_equation(expr, box)
    if equation is None:
        return False
    monomial, target = equation
    if target < 1:
        return True
    primes = _few_primes(target, monomial)
    if primes is None:
        return False
    return next(_deal(target, sorted(_divisors(primes)), monomial, box), None) is None


def divisor_points(relation: Relation, box: Box) -> Iterator[dict[str, int]]:
    """The positive solutions in `box` of a relation `c * x**p * y**q * … == constant`; none for any other
    relation.
    """
    equation = _monomial_equation(relation.expr, box) if relation.operator == "==" else None
    if equation is None or equation[1] < 1:
        return
    monomial, target = equation
    primes = _few_primes(target, monomial)
    if primes is not None:
        yield from _deal(target, sorted(_divisors(primes)), monomial, box)


def _monomial_equation(expr: Expr, box: Box) -> tuple[Monomial, int] | None:
    """`(monomial, value)` where `expr == 0` says that a product of positive symbols has a value; 0 for no
    integer.
    """
    if len(expr.terms) != 2 or () not in expr.terms:
        return None
    ((monomial, coefficient),) = ((m, c) for m, c in expr.terms.items() if m)
    if not all(_positive(atom, box) for atom, _ in monomial):
        return None
    quotient, rest = divmod(-expr.terms[()], coefficient)
    return monomial, 0 if rest else quotient


def _few_primes(target: int, monomial: Monomial) -> dict[int, int] | None:
    """The factors of `target`, unless there are too many ways to deal them out to the atoms of `monomial`."""
    primes = factor(target)
    if primes is None:
        return None
    ways = prod(count + 1 for count in primes.values()) ** (len(monomial) - 1)
    return primes if ways <= MAX_WAYS else None


def _deal(target: int, divisors: list[int], monomial: Monomial, box: Box) -> Iterator[dict[str, int]]:
    if not monomial:
        if target == 1:
            yield {}
        return
    (atom, power), *rest = monomial
    for value in divisors:
        if target % value**power == 0 and box.lower[atom.key] <= value <= box.upper[atom.key]:
            for others in _deal(target // value**power, divisors, tuple(rest), box):
                yield {atom.key: value, **others}


def _divisors(primes: dict[int, int]) -> list[int]:
    found = [1]
    for p, count in primes.items():
        found = [d * p**e for d in found for e in range(count + 1)]
    return found
