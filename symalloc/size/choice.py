"""Atoms that choose between expressions, `min`, `max` and `a if c else b`; and what the form of a size shows.

Signs: never negative, and at least another size, at points at which no divisor is zero.

Definedness: where every divisor is at least 1.  Floor division and remainder carry that obligation.  `holds`
and `fails` write a condition and its negation so that each relation stands behind the obligations of its own
divisors: both are false or true for a reason at every point, and neither is ever evaluated at a divisor below
1.  `0 * (n // k)`, `n // k - n // k` and `a if n // k == 0 else a` have values that do not depend on `k`, and
yet whoever computes them divides by `k`.  The reader of a condition adds the obligations of what it has read
and arithmetic has cancelled (`symalloc.size.parse`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from symalloc.size.algebra import Algebra, B, T
from symalloc.size.condition import (
    TRUE,
    And,
    Condition,
    Junction,
    Relation,
    conjunction,
    disjunction,
    ge,
    le,
    negate,
)
from symalloc.size.expr import (
    ONE,
    Atom,
    Expr,
    ExprLike,
    FloorDiv,
    Mod,
    Monomial,
    Symbol,
    constant,
    from_atom,
    lift,
)


class Choice(Atom):
    """An atom whose value is one of several expressions."""

    picks = True

    @property
    def cases(self) -> list[tuple[Condition, Expr]]:
        """The cases: a condition and the value there; together they cover every point."""
        raise NotImplementedError


_PICK: dict[str, Callable[[Iterable[int]], int]] = {"min": min, "max": max}


@dataclass(frozen=True, eq=False)
class Extremum(Choice):
    """The least or the greatest of two or more expressions."""

    parts: tuple[Expr, ...]
    key: str = field(init=False, repr=False)
    word: ClassVar[str]
    beats: ClassVar[Callable[[Expr, Expr], Condition]]  # the first is chosen before the second

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.word}({','.join(e.key for e in self.parts)})")

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.parts

    @property
    def cases(self) -> list[tuple[Condition, Expr]]:
        beats = type(self).beats
        return [(conjunction(beats(e, o) for o in self.parts if o is not e), e) for e in self.parts]

    def rebuild(self, change: Callable[[Expr], Expr]) -> Expr:
        return _extremum(type(self), tuple(map(change, self.parts)))

    def evaluate(self, binding: Mapping[str, int]) -> int:
        return _PICK[self.word](e.evaluate(binding) for e in self.parts)


class Min(Extremum):
    """The least of two or more expressions."""

    word, beats = "min", le

    def fold(self, algebra: Algebra[T, B]) -> T:
        return algebra.minimum([e.fold(algebra) for e in self.parts])


class Max(Extremum):
    """The greatest of two or more expressions."""

    word, beats = "max", ge

    def fold(self, algebra: Algebra[T, B]) -> T:
        return algebra.maximum([e.fold(algebra) for e in self.parts])


@dataclass(frozen=True, eq=False)
class Select(Choice):
    """`then` where `condition` holds, `otherwise` elsewhere; `whole`: all of the condition is evaluated, not
    only what decides it.
    """

    condition: Condition
    then: Expr
    otherwise: Expr
    whole: bool = False
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = (self.condition.key, self.then.key, self.otherwise.key)
        object.__setattr__(self, "key", f"{'!' * self.whole}?({')('.join(parts)})")

    @property
    def tested(self) -> tuple[Expr, ...]:
        """The expressions of the condition that are evaluated at every point."""
        return self.condition.exprs if self.whole else self.condition.leading

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (*self.condition.exprs, self.then, self.otherwise)

    @property
    def cases(self) -> list[tuple[Condition, Expr]]:
        return [(self.condition, self.then), (negate(self.condition), self.otherwise)]

    def rebuild(self, change: Callable[[Expr], Expr]) -> Expr:
        then, otherwise = change(self.then), change(self.otherwise)
        return select(self.condition.map(change), then, otherwise, whole=self.whole)

    def evaluate(self, binding: Mapping[str, int]) -> int:
        return (self.then if self.condition.evaluate(binding) else self.otherwise).evaluate(binding)

    def fold(self, algebra: Algebra[T, B]) -> T:
        then, otherwise = self.then.fold(algebra), self.otherwise.fold(algebra)
        return algebra.select(self.condition.fold(algebra), then, otherwise)


def minimum(*operands: ExprLike) -> Expr:
    """The least operand; nested minima are flattened, equal operands and constants folded."""
    return _extremum(Min, operands)


def maximum(*operands: ExprLike) -> Expr:
    """The greatest operand; nested maxima are flattened, equal operands and constants folded."""
    return _extremum(Max, operands)


def select(condition: Condition, then: ExprLike, otherwise: ExprLike, *, whole: bool = False) -> Expr:
    """`then` where `condition` holds, else `otherwise`; folded where the condition is constant."""
    then, otherwise = lift(then), lift(otherwise)
    value = condition.as_bool
    if value is not None:
        return then if value else otherwise
    return then if then == otherwise else from_atom(Select(condition, then, otherwise, whole))


def _extremum(kind: type[Extremum], operands: tuple[ExprLike, ...]) -> Expr:
    if not operands:
        raise ValueError(f"{kind.word} of nothing")
    flat: dict[Expr, None] = {}
    folded: int | None = None
    for operand in map(lift, operands):
        atom = operand.as_atom
        for part in atom.operands if isinstance(atom, kind) else (operand,):
            value = part.as_constant
            if value is None:
                flat[part] = None
            else:
                folded = value if folded is None else _PICK[kind.word]((folded, value))
    if folded is not None:
        flat[constant(folded)] = None
    if len(flat) == 1:
        return next(iter(flat))
    return from_atom(kind(tuple(sorted(flat, key=lambda e: e.key))))


def first_choice(subject: Condition | Expr) -> Choice | None:
    """An innermost `min`, `max` or `select` in `subject`: its operands hold none."""
    if isinstance(subject, Condition):
        return next((found for e in subject.exprs if (found := first_choice(e)) is not None), None)
    if subject.is_polynomial:
        return None
    for atom in sorted(subject.atoms):
        found = next((inner for e in atom.operands if (inner := first_choice(e)) is not None), None)
        if found is None and isinstance(atom, Choice):
            found = atom
        if found is not None:
            return found
    return None


class Signs:
    """Tells what is never negative, symbol by symbol as `nonnegative` says; remembers atoms."""

    __slots__ = ("_atoms", "_nonnegative")

    def __init__(self, nonnegative: Callable[[str], bool]) -> None:
        self._nonnegative = nonnegative
        self._atoms: dict[Atom, bool] = {}

    def expr(self, expr: Expr) -> bool:
        """Return whether every term of `expr` is seen to be >= 0; False says nothing."""
        return all(c > 0 and self.monomial(m) for m, c in expr.terms.items())

    def monomial(self, monomial: Monomial) -> bool:
        """Return whether a product of atoms is seen to be >= 0; False says nothing."""
        for atom, power in monomial:  # noqa: SIM110 - a generator takes as long as what it looks at
            if power % 2 and not self._atom(atom):
                return False
        return True

    def _atom(self, atom: Atom) -> bool:
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = self._seen(atom)
        return found

    def _seen(self, atom: Atom) -> bool:
        match atom:
            case Symbol(name=name):
                return self._nonnegative(name)
            case FloorDiv(numerator=above, denominator=below):
                return self.expr(above) and self.expr(below)
            case Mod(denominator=below):
                return self.expr(below)
            case Max(operands=operands):
                return any(map(self.expr, operands)) or any(-operand in operands for operand in operands)
            case Min(operands=operands):
                return all(map(self.expr, operands))
            case Select(then=then, otherwise=otherwise):
                return self.expr(then) and self.expr(otherwise)
        return False


def is_nonnegative(expr: Expr, signed: Collection[str] = ()) -> bool:
    """Return whether `expr` is seen to be >= 0, where every symbol is but those that are `signed`."""
    return Signs(lambda name: name not in signed).expr(expr)


def undominated(sizes: Iterable[Expr], signed: Collection[str] = ()) -> tuple[Expr, ...]:
    """Those of `sizes` that no other is seen to reach, of some that reach each other the first.

    Symbols are taken as >= 0, but for those that are `signed`.
    """
    return reaching(dict.fromkeys(sizes), lambda size, other: is_nonnegative(size - other, signed))


def reaching(sizes: Iterable[Expr], reaches: Callable[[Expr, Expr], bool]) -> tuple[Expr, ...]:
    """Those of `sizes` that no other `reaches`, of some that reach each other the first."""
    kept: list[Expr] = []
    for size in sizes:
        if not any(reaches(other, size) for other in kept):
            kept = [*(other for other in kept if not reaches(size, other)), size]
    return tuple(kept)


def grows(expr: Expr) -> bool:
    """Return whether `expr` is seen to be never less where a symbol is more, all of them >= 0."""
    return all(
        count > 0 and all(_grows(atom) for atom, _ in monomial) for monomial, count in expr.terms.items()
    )


def _grows(atom: Atom) -> bool:
    match atom:
        case Symbol():
            return True
        case FloorDiv(numerator=above, denominator=below):
            return (below.as_constant or 0) > 0 and grows(above)
        case Max(operands=operands) | Min(operands=operands):
            return all(map(grows, operands))
    return False


IsPositive = Callable[[Expr], bool]


def holds(condition: Condition, positive: IsPositive) -> Condition:
    """`condition`, and that it is defined; `positive(divisor)` tells the divisors known to be at least 1."""
    if not condition.divisors:
        return condition
    if all(map(positive, condition.divisors)):
        return condition
    if isinstance(condition, Relation):
        return conjunction((defined(condition.expr, positive), condition))
    assert isinstance(condition, Junction)
    return condition.connect(lambda operand: holds(operand, positive))


def fails(condition: Condition, positive: IsPositive) -> Condition:
    """The negation of `holds(condition)`."""
    if all(map(positive, condition.divisors)):
        return negate(condition)
    if isinstance(condition, Relation):
        usable = defined(condition.expr, positive)
        return disjunction((fails(usable, positive), conjunction((usable, negate(condition)))))
    assert isinstance(condition, Junction)
    join = disjunction if isinstance(condition, And) else conjunction
    return join(fails(c, positive) for c in condition.operands)


def defined(expr: Expr, positive: IsPositive) -> Condition:
    """That every divisor in `expr` which is evaluated is at least 1, inner ones first."""
    if all(map(positive, expr.divisors)):
        return TRUE
    parts: list[Condition] = []
    for atom in sorted(expr.atoms):
        if isinstance(atom, Select):
            test, then, otherwise = atom.condition, atom.then, atom.otherwise
            taken = conjunction((holds(test, positive), defined(then, positive)))
            passed = conjunction((fails(test, positive), defined(otherwise, positive)))
            tests = (
                (defined(e, positive) for e in test.exprs) if atom.whole else (_decidable(test, positive),)
            )
            parts += (*tests, disjunction((taken, passed)))
            continue
        parts += (defined(operand, positive) for operand in atom.operands)
        if atom.divisor is not None and not positive(atom.divisor):
            parts.append(ge(atom.divisor, 1))
    return conjunction(parts)


def _decidable(test: Condition, positive: IsPositive) -> Condition:
    """That `test` comes to a value, read from the left until a relation decides it."""
    if all(map(positive, test.divisors)):
        return TRUE
    if isinstance(test, Relation):
        return defined(test.expr, positive)
    assert isinstance(test, Junction)
    found = TRUE
    for operand in reversed(test.operands):
        decides = fails(operand, positive) if isinstance(test, And) else holds(operand, positive)
        found = conjunction((_decidable(operand, positive), disjunction((decides, found))))
    return found


def evaluated_divisors(sizes: Iterable[Expr]) -> tuple[Expr, ...]:
    """The divisors that must be at least 1 for `sizes` to be defined, constants aside, in a fixed order.

    A divisor in one branch alone of an if-then-else is 1 in the other: `d if test else 1`.
    """
    found = frozenset().union(*map(_divisors, sizes))
    return tuple(sorted((d for d in found if not _follows(d, found)), key=lambda divisor: divisor.key))


def _follows(divisor: Expr, others: frozenset[Expr]) -> bool:
    """True if `divisor` is 1 or one of `others`."""
    atom = divisor.as_atom
    return isinstance(atom, Select) and {atom.then, atom.otherwise} <= {ONE, *others}


def _divisors(expr: Expr) -> frozenset[Expr]:
    if not expr.divisors:
        return frozenset()
    found: set[Expr] = set()
    for atom in expr.atoms:
        if isinstance(atom, Select):
            then, otherwise = _divisors(atom.then), _divisors(atom.otherwise)
            found |= then & otherwise
            for test, only in (
                (atom.condition, then - otherwise),
                (negate(atom.condition), otherwise - then),
            ):
                found.update(select(test, d, ONE) for d in only if ge(d, 1) not in test.conjuncts)
            found.update(*map(_divisors, atom.tested))
            continue
        if atom.divisor is not None and (atom.divisor.as_constant or 0) < 1:
            found.add(atom.divisor)
        found.update(*map(_divisors, atom.operands))
    return frozenset(found)


def evaluated_atoms(expr: Expr) -> Iterator[Atom]:
    """The atoms that are evaluated wherever `expr` is, outer ones first."""
    pending = [expr]
    while pending:
        for atom in pending.pop().atoms:
            yield atom
            pending += atom.tested if isinstance(atom, Select) else atom.operands


def with_inner(exprs: Iterable[Expr]) -> list[Expr]:
    """`exprs` and the expressions inside their atoms, at every depth, each once."""
    pending = list(dict.fromkeys(exprs))
    found = set(pending)
    for expr in pending:  # which grows as it is walked
        fresh = dict.fromkeys(e for atom in expr.atoms for e in atom.operands if e not in found)
        found.update(fresh)
        pending += fresh
    return pending
