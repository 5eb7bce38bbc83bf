"""Values that arithmetic drops although they are evaluated: what is left of them is their divisors.

`0 * (n // k)`, `n // k - n // k` and `a if n // k == 0 else a` have values that do not depend on `k`, and yet
whoever computes them divides by `k`.  A reader of sizes keeps the obligation as a `Discarded` atom, which is
zero; arithmetic as such does not, for what it cancels was evaluated elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from symalloc.size.algebra import Algebra, B, T
from symalloc.size.choice import Select, select
from symalloc.size.condition import Condition, eq, ne
from symalloc.size.expr import ONE, ZERO, Atom, Expr, from_atom


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
