"""Exact size expressions: polynomials with integer coefficients over symbols and the atoms that sizes need.

An `Expr` is a sum of terms; a term is an integer coefficient times a monomial; a monomial is a product of
atoms with positive powers.  Two expressions that are equal as polynomials over the same atoms are equal
objects (`==`), whatever way they were written: `b*s*h == h*b*s`, `4*(n+m) == 4*n + 4*m`.  Atoms other than
symbols (`//` and `%` here, `min`, `max` and `select` in `symalloc.size.choice`) hold expressions of their
own.

Values are mathematical integers: nothing here wraps.  Division and remainder are Python's: they round
towards minus infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd
from typing import Any, ClassVar, TypeAlias

from symalloc.size.algebra import Algebra, B, T, Term
from symalloc.size.cached_property import cached_property
from symalloc.size.notation import PYTHON, Notation
from symalloc.size.polynomial import Factor, Polynomial, Powers, degree

ExprLike: TypeAlias = "Expr | int"


class Atom(Factor):
    """A factor of a monomial; it orders, compares and hashes by the text of its canonical form.

    A new kind of atom says what it is made of (`operands`), how it is built again, evaluated and folded;
    everything else is derived from these.
    """

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

    discards: ClassVar[bool] = False  # whether the value is zero whatever the operands are

    @property
    def divisor(self) -> Expr | None:
        """The operand that must be at least 1; None where there is none."""
        return None

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols, at every depth."""
        return frozenset().union(*(operand.symbols for operand in self.operands))


Monomial: TypeAlias = Powers[Atom]


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.sign}({self.numerator.key})({self.denominator.key})")

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.numerator, self.denominator

    @property
    def divisor(self) -> Expr:
        return self.denominator


class FloorDiv(Division):
    """`numerator // denominator`, rounding towards minus infinity."""

    sign = "//"

    def rebuild(self, change: Callable[[Expr], Expr]) -> Expr:
        return floordiv(change(self.numerator), change(self.denominator))

    def evaluate(self, binding: Mapping[str, int]) -> int:
        return self.numerator.evaluate(binding) // self.denominator.evaluate(binding)

    def fold(self, algebra: Algebra[T, B]) -> T:
        return algebra.floordiv(self.numerator.fold(algebra), self.denominator.fold(algebra))


class Mod(Division):
    """`numerator % denominator`, with the sign of the denominator."""

    sign = "%"

    def rebuild(self, change: Callable[[Expr], Expr]) -> Expr:
        return mod(change(self.numerator), change(self.denominator))

    def evaluate(self, binding: Mapping[str, int]) -> int:
        return self.numerator.evaluate(binding) % self.denominator.evaluate(binding)

    def fold(self, algebra: Algebra[T, B]) -> T:
        return algebra.mod(self.numerator.fold(algebra), self.denominator.fold(algebra))


class Expr(Polynomial[Atom]):
    """A polynomial over atoms; immutable, hashable, canonical.

    Build one with `symbol`, `constant` and operators.
    """

    def __floordiv__(self, other: ExprLike) -> Expr:
        return floordiv(self, other)

    def __mod__(self, other: ExprLike) -> Expr:
        return mod(self, other)

    @property
    def as_symbol(self) -> str | None:
        """The name, where the expression is exactly one symbol; otherwise None."""
        atom = self.as_atom
        return atom.name if isinstance(atom, Symbol) else None

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols, at every depth."""
        return frozenset().union(*(atom.symbols for atom in self.atoms))

    @cached_property
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

    @cached_property
    def divisors(self) -> frozenset[Expr]:
        """The divisors at every depth that are not positive constants."""
        found: set[Expr] = set()
        for atom in self.atoms:
            if atom.divisor is not None and (atom.divisor.as_constant or 0) < 1:
                found.add(atom.divisor)
            found.update(*(operand.divisors for operand in atom.operands))
        return frozenset(found)

    @cached_property
    def discards(self) -> bool:
        """True if an atom, at some depth, is zero whatever its operands are."""
        return any(atom.discards or any(e.discards for e in atom.operands) for atom in self.atoms)

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

    def text(self, notation: Notation) -> str:
        """The expression as `notation` writes it."""
        return self.fold(notation).text

    def __str__(self) -> str:
        return self.text(PYTHON)

    def _sympy_(self) -> Any:
        from symalloc.size.sympy_terms import SympyTerms

        return self.fold(SympyTerms())

    def _latex(self, printer: Any) -> Any:
        return printer.doprint(self._sympy_())

    def __repr__(self) -> str:
        return f"Expr({self})"


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


ZERO = Expr({})
ONE = constant(1)
