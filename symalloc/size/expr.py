"""Exact size expressions: polynomials with integer coefficients over symbols and the atoms that sizes need.

An `Expr` is a sum of terms; a term is an integer coefficient times a monomial; a monomial is a product of
atoms with positive powers.  Two expressions that are equal as polynomials over the same atoms are equal
objects (`==`), whatever way they were written: `b*s*h == h*b*s`, `4*(n+m) == 4*n + 4*m`.  Atoms other than
symbols (`//` and `%` here, `min`, `max` and `select` in `symalloc.size.choice`) hold expressions of their
own.

Values are mathematical integers: nothing here wraps.  Division and remainder are Python's: they round
towards minus infinity.  At the end: values where some sizes may not be known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial, reduce
from math import gcd, prod
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from symalloc.size.algebra import Algebra, B, T, Term
from symalloc.size.notation import Written

ExprLike: TypeAlias = "Expr | int"
Value = TypeVar("Value")


class computed_once(Generic[Value]):  # noqa: N801 - a decorator
    """As functools.cached_property, which takes a lock before Python 3.12."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __get__(self, instance: object, owner: type | None = None) -> Value:
        value = instance.__dict__[self.compute.__name__] = self.compute(instance)
        return value


class Atom:
    """A factor of a monomial; it orders, compares and hashes by the text of its canonical form.

    A new kind of atom says what it is made of (`operands`), how it is built again, evaluated and folded;
    everything else is derived from these.
    """

    key: str
    picks: ClassVar[bool] = False  # the value is that of an operand

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The expressions that the atom is made of, those of a condition first; none for a symbol."""
        raise NotImplementedError

    def rebuild(self, change: Callable[[Expr], Expr]) -> Expr:
        """The atom with `change` applied to each operand."""
        raise NotImplementedError

    def evaluate(self, binding: Mapping[str, int]) -> int:
        """The value under `binding`; raises KeyError and ZeroDivisionError as `Expr.evaluate` does."""
        raise NotImplementedError

    def fold(self, algebra: Algebra[T, B]) -> T:
        """The atom in `algebra`."""
        raise NotImplementedError

    @property
    def divisor(self) -> Expr | None:
        """The operand that must be at least 1; None where there is none."""
        return None

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols, at every depth."""
        return frozenset().union(*(operand.symbols for operand in self.operands))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Atom) -> bool:
        return self.key < other.key


Monomial: TypeAlias = tuple[tuple[Atom, int], ...]
"""Atoms in the order of their keys, with powers from 1."""


@dataclass(frozen=True, eq=False)
class Symbol(Atom):
    """A symbolic integer, named as the user named it."""

    name: str
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.name)

    @property
    def operands(self) -> tuple[Expr, ...]:
        return ()

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset((self.name,))

    def rebuild(self, change: Callable[[Expr], Expr]) -> Expr:
        return symbol(self.name)

    def evaluate(self, binding: Mapping[str, int]) -> int:
        return binding[self.name]

    def fold(self, algebra: Algebra[T, B]) -> T:
        return algebra.symbol(self.name)


@dataclass(frozen=True, eq=False)
class Division(Atom):
    """A quotient or a remainder; carries the obligation `denominator >= 1`."""

    numerator: Expr
    denominator: Expr
    key: str = field(init=False, repr=False)
    sign: ClassVar[str]
    apply: ClassVar[Callable[[Any, Any], Any]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.sign}({self.numerator.key})({self.denominator.key})")

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.numerator, self.denominator

    @property
    def divisor(self) -> Expr:
        return self.denominator

    def rebuild(self, change: Callable[[Expr], Expr]) -> Expr:
        made: Expr = type(self).apply(change(self.numerator), change(self.denominator))
        return made

    def evaluate(self, binding: Mapping[str, int]) -> int:
        value: int = type(self).apply(self.numerator.evaluate(binding), self.denominator.evaluate(binding))
        return value


class FloorDiv(Division):
    """`numerator // denominator`, rounding towards minus infinity."""

    sign, apply = "//", operator.floordiv

    def fold(self, algebra: Algebra[T, B]) -> T:
        return algebra.floordiv(self.numerator.fold(algebra), self.denominator.fold(algebra))


class Mod(Division):
    """`numerator % denominator`, with the sign of the denominator."""

    sign, apply = "%", operator.mod

    def fold(self, algebra: Algebra[T, B]) -> T:
        return algebra.mod(self.numerator.fold(algebra), self.denominator.fold(algebra))


class Expr(Written):
    """A polynomial over atoms; immutable, hashable, canonical.

    Build one with `symbol`, `constant` and operators.
    """

    __slots__ = ("__dict__", "_hash", "terms")

    terms: Mapping[Monomial, int]

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        """`terms` must hold no zero coefficient and sorted monomials; callers outside this room use the
        operators.
        """
        self.terms = terms
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Expr):
            return self.terms == other.terms
        if isinstance(other, int):
            return self.terms == ({(): other} if other else {})
        return NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __reduce__(self) -> tuple[type[Expr], tuple[dict[Monomial, int]]]:
        return Expr, (dict(self.terms),)  # a cached hash is worth nothing in another process

    @computed_once
    def key(self) -> str:
        """The text of the canonical form: equal for equal expressions, and the order of factors."""
        if len(self.terms) <= 1:
            return "+".join(_term_key(m, c) for m, c in self.terms.items()) or "0"
        return "+".join(sorted(_term_key(m, c) for m, c in self.terms.items()))

    def __add__(self, other: ExprLike) -> Expr:
        if not isinstance(other, Expr):
            if not isinstance(other, int):
                return NotImplemented  # a sum with sympy's is sympy's
            other = constant(other)
        if not other.terms:
            return self
        if not self.terms:
            return other
        total = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            total[monomial] = total.get(monomial, 0) + coefficient
            if not total[monomial]:
                del total[monomial]
        return Expr(total)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: ExprLike) -> Expr:
        return self + (-other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return (-self) + other

    def __mul__(self, other: ExprLike) -> Expr:
        if not isinstance(other, Expr):
            return self._scaled(other) if isinstance(other, int) else NotImplemented
        if len(other.terms) == 1 and () in other.terms:
            return self._scaled(other.terms[()])
        if len(self.terms) == 1 and () in self.terms:
            return other._scaled(self.terms[()])
        total: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                monomial = multiply(left, right)
                total[monomial] = total.get(monomial, 0) + a * b
        return Expr({m: c for m, c in total.items() if c})

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Expr:
        if exponent < 0:
            raise ValueError("a polynomial has no negative powers")
        if exponent == 1:
            return self
        return reduce(lambda a, _: a * self, range(exponent), ONE)

    @property
    def as_constant(self) -> int | None:
        """The value, where the polynomial has no atoms; otherwise None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1:
            return self.terms.get(())
        return None

    @property
    def as_atom(self) -> Atom | None:
        """The atom, where the polynomial is exactly one; otherwise None."""
        if len(self.terms) != 1:
            return None
        ((monomial, coefficient),) = self.terms.items()
        if coefficient != 1 or len(monomial) != 1 or monomial[0][1] != 1:
            return None
        return monomial[0][0]

    @computed_once
    def atoms(self) -> frozenset[Atom]:
        """The atoms at the top level (not those inside another atom)."""
        return frozenset(atom for monomial in self.terms for atom, _ in monomial)

    def map_atoms(self, change: Callable[[Atom], Expr | None]) -> Expr:
        """The polynomial with each top-level atom replaced by `change(atom)`; None keeps the atom."""
        total: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms.items():
            for key, value in self._changed(monomial, change).items():
                total[key] = total.get(key, 0) + coefficient * value
        return Expr({m: c for m, c in total.items() if c})

    def over(self, monomial: Monomial) -> Expr | None:
        """The polynomial divided by a monomial; None where some term does not have it."""
        terms: dict[Monomial, int] = {}
        for powers, coefficient in self.terms.items():
            rest = divide(powers, monomial)
            if rest is None:
                return None
            terms[rest] = coefficient
        return Expr(terms)

    def _scaled(self, factor: int) -> Expr:
        if factor == 1:
            return self
        return Expr({m: c * factor for m, c in self.terms.items()} if factor else {})

    def _changed(self, monomial: Monomial, change: Callable[[Atom], Expr | None]) -> Mapping[Monomial, int]:
        """The terms of `monomial` after `change`."""
        if len(monomial) == 1 and monomial[0][1] == 1:
            alone = change(monomial[0][0])
            return {monomial: 1} if alone is None else alone.terms
        kept: list[tuple[Atom, int]] = []
        term: Expr | None = None
        for factor in monomial:
            changed = change(factor[0])
            if changed is None:
                kept.append(factor)
            else:
                changed = changed ** factor[1]
                term = changed if term is None else term * changed
        if term is None:
            return {monomial: 1}
        rest = tuple(kept)
        return {multiply(rest, key): value for key, value in term.terms.items()} if rest else term.terms

    def __floordiv__(self, other: ExprLike) -> Expr:
        return floordiv(self, other)

    def __mod__(self, other: ExprLike) -> Expr:
        return mod(self, other)

    @property
    def as_symbol(self) -> str | None:
        """The name, where the expression is exactly one symbol; otherwise None."""
        atom = self.as_atom
        return atom.name if isinstance(atom, Symbol) else None

    @computed_once
    def symbols(self) -> frozenset[str]:
        """The names of all symbols, at every depth."""
        return frozenset().union(*(atom.symbols for atom in self.atoms))

    @computed_once
    def is_polynomial(self) -> bool:
        """True if every atom is a symbol."""
        return all(isinstance(atom, Symbol) for atom in self.atoms)

    def evaluate(self, binding: Mapping[str, int]) -> int:
        """The value under `binding`; raises KeyError for a missing symbol, ZeroDivisionError for a zero
        divisor.
        """
        total = 0
        for monomial, coefficient in self.terms.items():
            value = coefficient
            for atom, power in monomial:
                factor = binding[atom.name] if type(atom) is Symbol else atom.evaluate(binding)
                value *= factor if power == 1 else factor**power
            total += value
        return total

    @computed_once
    def divisors(self) -> frozenset[Expr]:
        """The divisors at every depth that are not positive constants."""
        found: set[Expr] = set()
        for atom in self.atoms:
            if atom.divisor is not None and (atom.divisor.as_constant or 0) < 1:
                found.add(atom.divisor)
            found.update(*(operand.divisors for operand in atom.operands))
        return frozenset(found)

    def substitute(self, replacement: Mapping[str, Expr]) -> Expr:
        """The expression with symbols replaced (all at once); symbols not in `replacement` stay."""
        if self.symbols.isdisjoint(replacement):
            return self

        def change(atom: Atom) -> Expr | None:
            if isinstance(atom, Symbol):
                return replacement.get(atom.name)
            if atom.symbols.isdisjoint(replacement):
                return None
            return atom.rebuild(lambda operand: operand.substitute(replacement))

        return self.map_atoms(change)

    def rewrite(self, change: Callable[[Atom], Expr | None]) -> Expr:
        """The expression with each atom replaced by `change(atom)`, operands first; None keeps the atom."""

        def inside(atom: Atom) -> Expr | None:
            if isinstance(atom, Symbol):
                return change(atom)
            rebuilt = atom.rebuild(lambda operand: operand.rewrite(change))
            only = rebuilt.as_atom
            if only is None or isinstance(only, Symbol):
                return rebuilt
            return change(only) or rebuilt

        if self.is_polynomial and not any(change(atom) for atom in self.atoms):
            return self
        return self.map_atoms(inside)

    def fold(self, algebra: Algebra[T, B]) -> T:
        """The expression in `algebra`."""
        memo = algebra.memo
        if memo is None:
            return algebra.total(self.fold_terms(algebra))
        found = memo.get(self)
        if found is None:
            found = memo[self] = algebra.total(self.fold_terms(algebra))
        return found

    def fold_terms(self, algebra: Algebra[T, B]) -> list[Term[T]]:
        """The terms in `algebra`, in the order that it asks for."""
        terms = sorted(self.terms.items(), key=_order) if algebra.ordered else self.terms.items()
        return [(c, [(atom.fold(algebra), power) for atom, power in m]) for m, c in terms]


def floordiv(numerator: ExprLike, denominator: ExprLike) -> Expr:
    """`numerator // denominator`; what the divisor divides leaves the division, and a common factor of the
    rest and the divisor is cancelled: `(260*m) // 256` is `m + m // 64`.
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
    whole = {m: -(-c // divisor) if m and c < 0 else c // divisor for m, c in numerator.terms.items()}
    rest = {m: c - whole[m] * divisor for m, c in numerator.terms.items() if c % divisor}
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
    rest = {m: c % divisor for m, c in numerator.terms.items() if _factor(Expr({m: c})) % divisor}
    if not any(rest):
        return constant(rest.get((), 0))
    common = gcd(divisor, *rest.values())
    reduced = Expr({m: c // common for m, c in rest.items()})
    return from_atom(Mod(reduced, constant(divisor // common))) * common


def _factor(*of: Expr) -> int:
    """The divisor that all values of expressions have in common, as their form shows; 0 where all are 0."""
    terms = (term for expr in of for term in expr.terms.items())
    return gcd(*(c * prod(_factor(*atom.operands) for atom, _ in m if atom.picks) for m, c in terms))


def ceildiv(numerator: ExprLike, denominator: ExprLike) -> Expr:
    """`-(-numerator // denominator)` for a positive denominator, written `(numerator + denominator - 1) //
    denominator`.
    """
    return floordiv(lift(numerator) + lift(denominator) - 1, denominator)


def round_up(value: ExprLike, multiple: int) -> Expr:
    """`value` rounded up to the next multiple of `multiple` (a positive constant)."""
    return ceildiv(value, multiple) * multiple


def product(factors: Iterable[ExprLike]) -> Expr:
    """The product of `factors`; 1 for none."""
    result = ONE
    for factor in factors:
        result = result * factor
    return result


@lru_cache(maxsize=4096)
def constant(value: int) -> Expr:
    """The integer `value` as an expression."""
    return Expr({(): value}) if value else ZERO


_SYMBOLS: dict[str, Expr] = {}


def symbol(name: str) -> Expr:
    """The symbol `name` as an expression."""
    found = _SYMBOLS.get(name)
    if found is None:
        found = _SYMBOLS[name] = Expr({((Symbol(name), 1),): 1})
    return found


def from_atom(atom: Atom) -> Expr:
    """`atom` as an expression."""
    return Expr({((atom, 1),): 1})


def lift(value: ExprLike) -> Expr:
    """`value` as an expression."""
    return value if isinstance(value, Expr) else constant(value)


def _order(term: tuple[Monomial, int]) -> tuple[int, list[str]]:
    """Higher degrees first, then by names."""
    monomial, _ = term
    return -degree(monomial), [atom.key for atom, _ in monomial]


def multiply(left: Monomial, right: Monomial) -> Monomial:
    """The product of two monomials."""
    if not left:
        return right
    if not right:
        return left
    if left[-1][0].key < right[0][0].key:
        return left + right
    if right[-1][0].key < left[0][0].key:
        return right + left
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].key))


def divide(left: Monomial, right: Monomial) -> Monomial | None:
    """The monomial that `right` is to be multiplied by to give `left`; None where there is none."""
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) - power
        if powers[atom] < 0:
            return None
    return tuple((atom, power) for atom, power in powers.items() if power)


def degree(monomial: Monomial) -> int:
    """The sum of the powers."""
    return sum(power for _, power in monomial)


def _term_key(monomial: Monomial, coefficient: int) -> str:
    """The text of a term in the canonical form."""
    factors = [f"{atom.key}^{power}" if power > 1 else atom.key for atom, power in monomial]
    return "*".join([str(coefficient), *factors])


ZERO = Expr({})
ONE = constant(1)


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
