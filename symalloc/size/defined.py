"""Definedness: where every divisor is at least 1.

Floor division and remainder carry that obligation.  `holds` and `fails` write a condition and its negation
so that each relation stands behind the obligations of its own divisors: both are false or true for a reason
at every point, and neither is ever evaluated at a divisor below 1.

`0 * (n // k)`, `n // k - n // k` and `a if n // k == 0 else a` have values that do not depend on `k`, and yet
whoever computes them divides by `k`.  A reader of sizes keeps the obligation as a `Discarded` atom, which is
zero; arithmetic as such does not, for what it cancels was evaluated elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from symalloc.size.algebra import Algebra, B, T
from symalloc.size.choice import Select, select
from symalloc.size.condition import (
    TRUE,
    And,
    Condition,
    Junction,
    Relation,
    conjunction,
    disjunction,
    eq,
    ge,
    ne,
    negate,
)
from symalloc.size.expr import ONE, ZERO, Atom, Expr, from_atom

IsPositive = Callable[[Expr], bool]


def holds(condition: Condition, positive: IsPositive) -> Condition:
    """`condition`, and that it is defined; `positive(divisor)` tells the divisors known to be at least 1."""
    if not condition.divisors:
        return condition
    if all(map(positive, condition.divisors)):
        return without_discarded(condition)
    if isinstance(condition, Relation):
        return conjunction((defined(condition.expr, positive), without_discarded(condition)))
    assert isinstance(condition, Junction)
    return condition.connect(lambda operand: holds(operand, positive))


def fails(condition: Condition, positive: IsPositive) -> Condition:
    """The negation of `holds(condition)`."""
    if not condition.divisors:
        return negate(condition)
    if all(map(positive, condition.divisors)):
        return without_discarded(negate(condition))
    if isinstance(condition, Relation):
        usable = defined(condition.expr, positive)
        wrong = without_discarded(negate(condition))
        return disjunction((fails(usable, positive), conjunction((usable, wrong))))
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
            parts += (_decidable(test, positive), disjunction((taken, passed)))
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
            found.update(*map(_divisors, atom.condition.leading))
            continue
        if atom.divisor is not None and (atom.divisor.as_constant or 0) < 1:
            found.add(atom.divisor)
        found.update(*map(_divisors, atom.operands))
    return frozenset(found)


@dataclass(frozen=True, eq=False)
class Discarded(Atom):
    """Zero, once `operand` is evaluated."""

    operand: Expr
    key: str = field(init=False, repr=False)
    discards: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"0({self.operand.key})")

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def rebuild(self, change: Callable[[Expr], Expr]) -> Expr:
        operand = change(self.operand)
        return from_atom(Discarded(operand)) if operand.divisors else ZERO

    def evaluate(self, binding: Mapping[str, int]) -> int:
        return 0 * self.operand.evaluate(binding)

    def fold(self, algebra: Algebra[T, B]) -> T:
        return algebra.discarded(self.operand.fold(algebra))


def evaluated_atoms(expr: Expr) -> Iterator[Atom]:
    """The atoms that are evaluated wherever `expr` is, outer ones first."""
    pending = [expr]
    while pending:
        for atom in pending.pop().atoms:
            yield atom
            pending += atom.condition.leading if isinstance(atom, Select) else atom.operands


def lost(value: Expr, *sources: Expr) -> Expr:
    """Zero, once the divisions of `sources` are evaluated that `value`, computed from them, has lost."""
    found = ZERO
    for source in sources:
        if source.divisors:
            found += _lost(value + found, source)
    return found


def owing(value: Expr, *sources: Expr) -> Expr:
    """`value`, computed from `sources`, with the divisions that it has lost."""
    return value + lost(value, *sources)


def owing_condition(condition: Condition, *sources: Expr) -> Condition:
    """`condition`, a relation computed from `sources`, with the divisions that it has lost."""
    rest = _lost_by(condition, sources)
    if not rest.terms:
        return condition
    if condition.as_bool is None:
        return condition.map(lambda expr: expr + rest)
    return eq(rest, 0) if condition.as_bool else ne(rest, 0)


def settled(condition: Condition, *sources: Expr) -> tuple[Condition, Expr]:
    """`condition`, a relation computed from `sources`, without terms that are zero; and what it has lost."""
    zero = _lost_by(condition, sources)
    for expr in condition.exprs:
        zero += _zero_terms(expr)
    return condition.map(lambda expr: expr - _zero_terms(expr)), zero


def _zero_terms(expr: Expr) -> Expr:
    return Expr({m: c for m, c in expr.terms.items() if any(atom.discards for atom, _ in m)})


def _lost_by(condition: Condition, sources: Sequence[Expr]) -> Expr:
    return lost(ZERO if condition.as_bool is not None else sum(condition.exprs, ZERO), *sources)


def evaluating(condition: Condition, before: Condition) -> Condition:
    """`condition`, a constant, once `before` has come to a value."""
    return owing_condition(condition, from_atom(Select(before, ONE, ZERO))) if before.divisors else condition


def choose(test: Condition, then: Expr, otherwise: Expr) -> Expr:
    """`then if test else otherwise`, with the divisions of the test where both are the same."""
    value = select(test, then, otherwise)
    return value if test.as_bool is not None else owing(value, from_atom(Select(test, then, otherwise)))


def without_discarded(condition: Condition) -> Condition:
    """`condition` as its values alone say it."""
    if not any(expr.discards for expr in condition.exprs):
        return condition
    return condition.rewrite(lambda atom: ZERO if atom.discards else None)


def _lost(value: Expr, source: Expr) -> Expr:
    kept = set(evaluated_atoms(value))
    divisors = {atom.divisor for atom in kept}
    found = ZERO
    for atom in evaluated_atoms(source):
        divides = atom.divisor is not None and (atom.divisor.as_constant or 0) < 1
        if (divides and atom.divisor not in divisors) or (
            isinstance(atom, Select) and atom not in kept and from_atom(atom).divisors
        ):
            again = from_atom(atom)
            found += from_atom(Discarded(again))
            kept.update(evaluated_atoms(again))
            divisors = {known.divisor for known in kept}
    return found
