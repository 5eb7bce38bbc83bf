"""Exact size expressions: polynomials with integer coefficients over symbols and the atoms that sizes need.

An `Expr` is a sum of terms; a term is an integer coefficient times a monomial; a monomial is a product of
atoms with positive powers.  Two expressions that are equal as polynomials over the same atoms are equal
objects (`==`), whatever way they were written: `b*s*h == h*b*s`, `4*(n+m) == 4*n + 4*m`.  Atoms other than
symbols (`//`, `%`, `min`, `max`, `select`) hold expressions of their own.

Values are mathematical integers: nothing here wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, reduce
from typing import TypeAlias

from symalloc.size.atoms import Atom, Monomial, Symbol
from symalloc.size.monomials import expanded, multiply, term_key

__all__ = ["ONE", "ZERO", "Expr", "ExprLike", "constant", "from_atom", "lift", "symbol"]

ExprLike: TypeAlias = "Expr | int"


class Expr:
    """A polynomial over atoms; immutable, hashable, canonical.  Build one with `symbol`, `constant` and
    operators.
    """

    __slots__ = ("__dict__", "_hash", "terms")

    terms: Mapping[Monomial, int]

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        """`terms` must hold no zero coefficient and sorted monomials; callers outside this file use the
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

    @cached_property
    def key(self) -> str:
        """The text of the canonical form: equal for equal expressions, and what atoms are ordered by."""
        if len(self.terms) <= 1:
            return "+".join(term_key(m, c) for m, c in self.terms.items()) or "0"
        return "+".join(sorted(term_key(m, c) for m, c in self.terms.items()))

    def __add__(self, other: ExprLike) -> Expr:
        other = lift(other)
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
        return self + (-lift(other))

    def __rsub__(self, other: ExprLike) -> Expr:
        return (-self) + other

    def __mul__(self, other: ExprLike) -> Expr:
        if isinstance(other, int):
            return _scaled(self, other)
        if len(other.terms) == 1 and () in other.terms:
            return _scaled(self, other.terms[()])
        if len(self.terms) == 1 and () in self.terms:
            return _scaled(other, self.terms[()])
        total: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                monomial = multiply(left, right)
                total[monomial] = total.get(monomial, 0) + a * b
        return Expr({m: c for m, c in total.items() if c})

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Expr:
        if exponent < 0:
            raise ValueError("a size expression has no negative powers")
        if exponent == 1:
            return self
        return reduce(lambda a, _: a * self, range(exponent), ONE)

    def __floordiv__(self, other: ExprLike) -> Expr:
        from symalloc.size.operations import floordiv

        return floordiv(self, other)

    def __mod__(self, other: ExprLike) -> Expr:
        from symalloc.size.operations import mod

        return mod(self, other)

    @property
    def as_constant(self) -> int | None:
        """The value, where the expression has no atoms; otherwise None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1:
            return self.terms.get(())
        return None

    @property
    def as_symbol(self) -> str | None:
        """The name, where the expression is exactly one symbol; otherwise None."""
        atom = self.as_atom
        return atom.name if isinstance(atom, Symbol) else None

    @property
    def as_atom(self) -> Atom | None:
        """The atom, where the expression is exactly one atom; otherwise None."""
        if len(self.terms) != 1:
            return None
        ((monomial, coefficient),) = self.terms.items()
        if coefficient != 1 or len(monomial) != 1 or monomial[0][1] != 1:
            return None
        return monomial[0][0]

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        """The atoms at the top level (not those inside another atom)."""
        return frozenset(atom for monomial in self.terms for atom, _ in monomial)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols, at every depth."""
        return frozenset().union(*(atom.symbols for atom in self.atoms))

    @cached_property
    def is_polynomial(self) -> bool:
        """Whether every atom is a symbol."""
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

    def substitute(self, replacement: Mapping[str, Expr]) -> Expr:
        """The expression with symbols replaced (all at once); symbols not in `replacement` stay."""
        if self.symbols.isdisjoint(replacement):
            return self
        from symalloc.size.operations import rebuild

        def change(atom: Atom) -> Expr | None:
            if isinstance(atom, Symbol):
                return replacement.get(atom.name)
            if atom.symbols.isdisjoint(replacement):
                return None
            return rebuild(atom, lambda e: e.substitute(replacement), lambda c: c.substitute(replacement))

        return self.map_atoms(change)

    def map_atoms(self, change: Callable[[Atom], Expr | None]) -> Expr:
        """The expression with each top-level atom replaced by `change(atom)`; None keeps the atom."""
        total: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms.items():
            for key, value in _changed(monomial, change).items():
                total[key] = total.get(key, 0) + coefficient * value
        return Expr({m: c for m, c in total.items() if c})

    def shift(self, offsets: Mapping[str, int]) -> Expr:
        """The expression with `offsets[name]` added to each symbol; itself where that changes nothing.

        All atoms must be symbols.
        """
        if not any(map(offsets.get, self.symbols)):
            return self
        total: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms.items():
            for key, value in expanded(monomial, coefficient, offsets).items():
                total[key] = total.get(key, 0) + value
        return Expr({m: c for m, c in total.items() if c})

    def __str__(self) -> str:
        from symalloc.size.render import render_expr

        return render_expr(self)

    def __repr__(self) -> str:
        return f"Expr({self})"


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


def _scaled(expr: Expr, factor: int) -> Expr:
    if factor == 1:
        return expr
    return Expr({m: c * factor for m, c in expr.terms.items()}) if factor else ZERO


def _changed(monomial: Monomial, change: Callable[[Atom], Expr | None]) -> Mapping[Monomial, int]:
    """The terms of `monomial` after `change`."""
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


ZERO = Expr({})
ONE = constant(1)
