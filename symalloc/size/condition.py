"""Conditions over size expressions: relations with zero, joined by and, or, not.

A `Relation` is kept in the form `expr <= 0`, `expr == 0` or `expr != 0` without common factors, so that `a
< b`, `b > a` and `4*a - 4*b + 4 <= 0` are one object.  Negation is pushed inwards at once: there is no Not
node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import ClassVar

from symalloc.size.algebra import Algebra, B, Operator, T
from symalloc.size.expr import Atom, Expr, ExprLike, computed_once, lift
from symalloc.size.notation import Written


class Condition(Written):
    """A statement about sizes, true or false at each binding of the symbols."""

    key: str
    symbols: frozenset[str]

    @property
    def as_bool(self) -> bool | None:
        """True or False where the condition holds no symbols; otherwise None."""
        return None

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """The expressions that are compared, at every depth."""
        return tuple(part.expr for part in self.relations)

    @property
    def leading(self) -> tuple[Expr, ...]:
        """The expressions that are compared whatever they turn out to be: those of the first relation."""
        first = next(self.relations, None)
        return () if first is None else (first.expr,)

    def evaluate(self, binding: Mapping[str, int]) -> bool:
        """The truth under `binding`; raises KeyError and ZeroDivisionError as `Expr.evaluate` does."""
        raise NotImplementedError

    @property
    def conjuncts(self) -> tuple[Condition, ...]:
        """The conditions that must all hold; the condition itself where it is no conjunction."""
        return (self,)

    @property
    def relations(self) -> Iterator[Relation]:
        """The relations at every depth, in order."""
        raise NotImplementedError

    def map(self, change: Callable[[Expr], Expr]) -> Condition:
        """The condition with `change` applied to each expression that is compared."""
        raise NotImplementedError

    def fold(self, algebra: Algebra[T, B]) -> B:
        """The condition in `algebra`."""
        raise NotImplementedError

    @property
    def divisors(self) -> frozenset[Expr]:
        """The divisors at every depth that are not positive constants."""
        return frozenset().union(*(expr.divisors for expr in self.exprs))

    def substitute(self, replacement: Mapping[str, Expr]) -> Condition:
        """The condition with symbols replaced (all at once)."""
        return self.map(lambda expr: expr.substitute(replacement))

    def rewrite(self, change: Callable[[Atom], Expr | None]) -> Condition:
        """The condition with every expression in it rewritten (`Expr.rewrite`)."""
        return self.map(lambda expr: expr.rewrite(change))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Condition) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, eq=False, repr=False)
class Relation(Condition):
    """`expr operator 0`."""

    operator: Operator
    expr: Expr

    @computed_once
    def key(self) -> str:
        return f"[{self.expr.key}{self.operator}0]"

    @property
    def symbols(self) -> frozenset[str]:  # type: ignore[override]
        return self.expr.symbols

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.expr,)

    @property
    def divisors(self) -> frozenset[Expr]:
        return self.expr.divisors

    @property
    def as_bool(self) -> bool | None:
        value = self.expr.as_constant
        return None if value is None else _holds(self.operator, value)

    def evaluate(self, binding: Mapping[str, int]) -> bool:
        return _holds(self.operator, self.expr.evaluate(binding))

    @property
    def relations(self) -> Iterator[Relation]:
        yield self

    def map(self, change: Callable[[Expr], Expr]) -> Condition:
        changed = change(self.expr)
        return self if changed is self.expr else relation(self.operator, changed)

    def fold(self, algebra: Algebra[T, B]) -> B:
        return algebra.relation(self.operator, self.expr.fold_terms(algebra))


@dataclass(frozen=True, eq=False, repr=False)
class Junction(Condition):
    """Conditions joined by `and` or by `or`."""

    operands: tuple[Condition, ...]
    word: ClassVar[str]

    @computed_once
    def key(self) -> str:
        return f"{self.word}({','.join(c.key for c in self.operands)})"

    @computed_once
    def symbols(self) -> frozenset[str]:
        return frozenset().union(*(c.symbols for c in self.operands))

    @property
    def relations(self) -> Iterator[Relation]:
        for operand in self.operands:
            yield from operand.relations

    @property
    def as_bool(self) -> bool | None:
        return (self.word == "and") if not self.operands else None

    def connect(self, change: Callable[[Condition], Condition]) -> Condition:
        """The operands after `change`, joined as they are here."""
        return _junction(type(self), map(change, self.operands))

    def map(self, change: Callable[[Expr], Expr]) -> Condition:
        return self.connect(lambda operand: operand.map(change))


class And(Junction):
    """All operands hold; with none, true."""

    word = "and"

    def evaluate(self, binding: Mapping[str, int]) -> bool:
        return all(c.evaluate(binding) for c in self.operands)

    @property
    def conjuncts(self) -> tuple[Condition, ...]:
        return self.operands

    def fold(self, algebra: Algebra[T, B]) -> B:
        return algebra.conjunction([c.fold(algebra) for c in self.operands])


class Or(Junction):
    """Some operand holds; with none, false.

    Operands are evaluated left to right and stop at the first that holds.
    """

    word = "or"

    def evaluate(self, binding: Mapping[str, int]) -> bool:
        return any(c.evaluate(binding) for c in self.operands)

    def fold(self, algebra: Algebra[T, B]) -> B:
        return algebra.disjunction([c.fold(algebra) for c in self.operands])


TRUE: Condition = And(())
FALSE: Condition = Or(())


def conjunction(conditions: Iterable[Condition]) -> Condition:
    """All of `conditions`: flattened, duplicates and trues dropped, false if one of them is false."""
    return _junction(And, conditions)


def disjunction(conditions: Iterable[Condition]) -> Condition:
    """Some of `conditions`: flattened, duplicates and falses dropped, true if one of them is true."""
    return _junction(Or, conditions)


def _junction(kind: type[Junction], conditions: Iterable[Condition]) -> Condition:
    neutral = kind is And
    flat: dict[Condition, None] = {}
    for condition in conditions:
        for part in condition.operands if isinstance(condition, kind) else (condition,):
            value = part.as_bool
            if value is None:
                flat[part] = None
            elif value is not neutral:
                return FALSE if neutral else TRUE
    if not flat:
        return TRUE if neutral else FALSE
    return next(iter(flat)) if len(flat) == 1 else kind(tuple(flat))


def le(left: ExprLike, right: ExprLike) -> Condition:
    """`left <= right`."""
    return relation("<=", lift(left) - right)


def lt(left: ExprLike, right: ExprLike) -> Condition:
    """`left < right`, kept as `left - right + 1 <= 0`."""
    return relation("<=", lift(left) - right + 1)


def ge(left: ExprLike, right: ExprLike) -> Condition:
    """`left >= right`."""
    return le(right, left)


def gt(left: ExprLike, right: ExprLike) -> Condition:
    """`left > right`."""
    return lt(right, left)


def eq(left: ExprLike, right: ExprLike) -> Condition:
    """`left == right`."""
    return relation("==", lift(left) - right)


def ne(left: ExprLike, right: ExprLike) -> Condition:
    """`left != right`."""
    return relation("!=", lift(left) - right)


def negate(condition: Condition) -> Condition:
    """The condition that holds exactly where `condition` does not."""
    match condition:
        case Relation(operator="<=", expr=expr):
            return relation("<=", 1 - expr)
        case Relation(operator="==", expr=expr):
            return relation("!=", expr)
        case Relation(operator="!=", expr=expr):
            return relation("==", expr)
        case And(operands=operands):
            return disjunction(negate(c) for c in operands)
        case Or(operands=operands):
            return conjunction(negate(c) for c in operands)
    raise TypeError(f"not a condition: {condition!r}")


def relation(operator: Operator, expr: Expr) -> Condition:
    """The condition `expr operator 0`, without common factors: `4*m <= 18` is `m <= 4`, and `2*n == 7` is
    false (atoms are integers).
    """
    divisor = gcd(*(c for m, c in expr.terms.items() if m))
    offset = expr.terms.get((), 0)
    if divisor == 0:
        return TRUE if _holds(operator, offset) else FALSE
    if operator != "<=":
        if offset % divisor:
            return TRUE if operator == "!=" else FALSE
        first = min(expr.terms, key=lambda m: [(atom.key, power) for atom, power in m])
        if expr.terms[first] < 0:  # `e == 0` and `-e == 0` share one form
            divisor = -divisor
    if divisor != 1:
        terms = {m: c // divisor for m, c in expr.terms.items() if m}
        rounded = -(-offset // divisor)
        expr = Expr({**terms, (): rounded} if rounded else terms)
    return Relation(operator, expr)


def _holds(operator: Operator, value: int) -> bool:
    if operator == "<=":
        return value <= 0
    return value == 0 if operator == "==" else value != 0
