"""Exact size expressions: polynomials with integer coefficients over symbols and the atoms that sizes need.

An `Expr` is a sum of terms; a term is an integer coefficient times a monomial; a monomial is a product of
atoms with positive powers.  Two expressions that are equal as polynomials over the same atoms are equal
objects (`==`), whatever way they were written: `b*s*h == h*b*s`, `4*(n+m) == 4*n + 4*m`.  Atoms other than
symbols (`//`, `%`, `min`, `max`, `select`) hold expressions of their own; division and remainder are
Python's (they round towards minus infinity).

Values are mathematical integers: nothing here wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from math import comb
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from symalloc.size.condition import Condition

__all__ = [
    "ONE",
    "ZERO",
    "Atom",
    "Expr",
    "ExprLike",
    "FloorDiv",
    "Max",
    "Min",
    "Mod",
    "Monomial",
    "Select",
    "Symbol",
    "ceildiv",
    "constant",
    "floordiv",
    "maximum",
    "minimum",
    "mod",
    "product",
    "round_up",
    "select",
    "symbol",
]


class _Keyed:
    """An atom orders, compares and hashes by the text of its canonical form."""

    key: str

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Keyed) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: _Keyed) -> bool:
        return self.key < other.key


@dataclass(frozen=True, eq=False)
class Symbol(_Keyed):
    """A symbolic integer, named as the user named it."""

    name: str
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.name)


@dataclass(frozen=True, eq=False)
class FloorDiv(_Keyed):
    """`numerator // denominator`, rounding towards minus infinity; carries the obligation `denominator >=
    1`.
    """

    numerator: Expr
    denominator: Expr
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"//({self.numerator.key})({self.denominator.key})")


@dataclass(frozen=True, eq=False)
class Mod(_Keyed):
    """`numerator % denominator` with the sign of the denominator; carries the obligation `denominator >=
    1`.
    """

    numerator: Expr
    denominator: Expr
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"%({self.numerator.key})({self.denominator.key})")


@dataclass(frozen=True, eq=False)
class Min(_Keyed):
    """The least of two or more expressions."""

    operands: tuple[Expr, ...]
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"min({','.join(e.key for e in self.operands)})")


@dataclass(frozen=True, eq=False)
class Max(_Keyed):
    """The greatest of two or more expressions."""

    operands: tuple[Expr, ...]
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"max({','.join(e.key for e in self.operands)})")


@dataclass(frozen=True, eq=False)
class Select(_Keyed):
    """`then` where `condition` holds, `otherwise` elsewhere."""

    condition: Condition
    then: Expr
    otherwise: Expr
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"?({self.condition.key})({self.then.key})({self.otherwise.key})")


Atom: TypeAlias = Symbol | FloorDiv | Mod | Min | Max | Select
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]
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

    # -- identity
    # ---------------------------------------------------------------------------------------------------

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
            return "+".join(_term_key(m, c) for m, c in self.terms.items()) or "0"
        return "+".join(sorted(_term_key(m, c) for m, c in self.terms.items()))

    # -- arithmetic
    # -------------------------------------------------------------------------------------------------

    def __add__(self, other: ExprLike) -> Expr:
        other = _lift(other)
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
        return self + (-_lift(other))

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
                monomial = _multiply(left, right)
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
        return floordiv(self, other)

    def __mod__(self, other: ExprLike) -> Expr:
        return mod(self, other)

    # -- questions
    # --------------------------------------------------------------------------------------------------

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
        if len(self.terms) == 1:
            ((monomial, coefficient),) = self.terms.items()
            if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
                atom = monomial[0][0]
                return atom.name if isinstance(atom, Symbol) else None
        return None

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
        names: set[str] = set()
        for atom in self.atoms:
            names |= _atom_symbols(atom)
        return frozenset(names)

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
                factor = binding[atom.name] if type(atom) is Symbol else _evaluate_atom(atom, binding)
                value *= factor if power == 1 else factor**power
            total += value
        return total

    def substitute(self, replacement: Mapping[str, Expr]) -> Expr:
        """The expression with symbols replaced (all at once); symbols not in `replacement` stay."""
        if self.symbols.isdisjoint(replacement):
            return self
        return self.map_atoms(lambda atom: _substitute_atom(atom, replacement))

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
            for key, value in _expanded(monomial, coefficient, offsets).items():
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


def _atom(atom: Atom) -> Expr:
    return Expr({((atom, 1),): 1})


def floordiv(numerator: ExprLike, denominator: ExprLike) -> Expr:
    """`numerator // denominator`; terms that the divisor divides exactly leave the division."""
    numerator, denominator = _lift(numerator), _lift(denominator)
    divisor = denominator.as_constant
    if divisor == 1:
        return numerator
    if divisor is None or divisor <= 0:
        value = numerator.as_constant
        if divisor is not None and divisor < 0 and value is not None:
            return constant(value // divisor)
        return _atom(FloorDiv(numerator, denominator))
    whole = {m: c // divisor for m, c in numerator.terms.items() if c % divisor == 0 or not m}
    rest = {m: (c % divisor if not m else c) for m, c in numerator.terms.items() if c % divisor}
    outside = Expr({m: c for m, c in whole.items() if c})
    return outside + _atom(FloorDiv(Expr(rest), denominator)) if any(rest) else outside


def mod(numerator: ExprLike, denominator: ExprLike) -> Expr:
    """`numerator % denominator`; coefficients are reduced by a constant divisor."""
    numerator, denominator = _lift(numerator), _lift(denominator)
    divisor = denominator.as_constant
    if divisor is None or divisor <= 0:
        value = numerator.as_constant
        if divisor is not None and divisor < 0 and value is not None:
            return constant(value % divisor)
        return _atom(Mod(numerator, denominator))
    rest = Expr({m: c % divisor for m, c in numerator.terms.items() if c % divisor})
    value = rest.as_constant
    return constant(value) if value is not None else _atom(Mod(rest, denominator))


def ceildiv(numerator: ExprLike, denominator: ExprLike) -> Expr:
    """`-(-numerator // denominator)` for a positive denominator, written `(numerator + denominator - 1) //
    denominator`.
    """
    return floordiv(_lift(numerator) + _lift(denominator) - 1, denominator)


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
    then, otherwise = _lift(then), _lift(otherwise)
    value = condition.as_bool
    if value is not None:
        return then if value else otherwise
    return then if then == otherwise else _atom(Select(condition, then, otherwise))


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
    for operand in map(_lift, operands):
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
    return _atom(kind(tuple(sorted(flat, key=lambda e: e.key))))


def _flatten(kind: type[Min] | type[Max], operand: Expr) -> tuple[Expr, ...]:
    if len(operand.terms) == 1:
        ((monomial, coefficient),) = operand.terms.items()
        if (
            coefficient == 1
            and len(monomial) == 1
            and monomial[0][1] == 1
            and isinstance(monomial[0][0], kind)
        ):
            return monomial[0][0].operands
    return (operand,)


def _scaled(expr: Expr, factor: int) -> Expr:
    if factor == 1:
        return expr
    return Expr({m: c * factor for m, c in expr.terms.items()}) if factor else ZERO


def _lift(value: ExprLike) -> Expr:
    return value if isinstance(value, Expr) else constant(value)


def _multiply(left: Monomial, right: Monomial) -> Monomial:
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
    return {_multiply(rest, key): value for key, value in term.terms.items()} if rest else term.terms


def _expanded(monomial: Monomial, coefficient: int, offsets: Mapping[str, int]) -> dict[Monomial, int]:
    """The terms of `coefficient * monomial` with offsets added to its symbols, by the binomial theorem."""
    terms: dict[Monomial, int] = {(): coefficient}
    for factor in monomial:
        atom, power = factor
        offset = offsets.get(atom.key, 0)
        if not offset:
            terms = {(*m, factor): c for m, c in terms.items()}
            continue
        terms = {
            (*m, (atom, k)) if k else m: c * comb(power, k) * offset ** (power - k)
            for m, c in terms.items()
            for k in range(power + 1)
        }
    return terms


def _term_key(monomial: Monomial, coefficient: int) -> str:
    factors = [f"{atom.key}^{power}" if power > 1 else atom.key for atom, power in monomial]
    return "*".join([str(coefficient), *factors])


def _atom_symbols(atom: Atom) -> frozenset[str]:
    match atom:
        case Symbol(name=name):
            return frozenset((name,))
        case FloorDiv() | Mod():
            return atom.numerator.symbols | atom.denominator.symbols
        case Min() | Max():
            return frozenset().union(*(e.symbols for e in atom.operands))
        case Select():
            return atom.condition.symbols | atom.then.symbols | atom.otherwise.symbols


def _evaluate_atom(atom: Atom, binding: Mapping[str, int]) -> int:
    match atom:
        case Symbol(name=name):
            return binding[name]
        case FloorDiv():
            return atom.numerator.evaluate(binding) // atom.denominator.evaluate(binding)
        case Mod():
            return atom.numerator.evaluate(binding) % atom.denominator.evaluate(binding)
        case Min():
            return min(e.evaluate(binding) for e in atom.operands)
        case Max():
            return max(e.evaluate(binding) for e in atom.operands)
        case Select():
            return (atom.then if atom.condition.evaluate(binding) else atom.otherwise).evaluate(binding)


def _substitute_atom(atom: Atom, replacement: Mapping[str, Expr]) -> Expr | None:
    """The value of `atom` after the replacement; None where it stays as it is."""
    if isinstance(atom, Symbol):
        return replacement.get(atom.name)
    if _atom_symbols(atom).isdisjoint(replacement):
        return None
    match atom:
        case FloorDiv():
            return floordiv(atom.numerator.substitute(replacement), atom.denominator.substitute(replacement))
        case Mod():
            return mod(atom.numerator.substitute(replacement), atom.denominator.substitute(replacement))
        case Min():
            return minimum(*(e.substitute(replacement) for e in atom.operands))
        case Max():
            return maximum(*(e.substitute(replacement) for e in atom.operands))
        case Select():
            return select(
                atom.condition.substitute(replacement),
                atom.then.substitute(replacement),
                atom.otherwise.substitute(replacement),
            )


ZERO = Expr({})
ONE = constant(1)
