"""The interface of a fold over sizes: what each node of an expression or a condition becomes.

`Expr.fold`, `Atom.fold` and `Condition.fold` call these methods from the leaves up, with the values of the
operands.  Printers, solvers' terms, TIR and arrays of values are algebras; so is anything else that can be
computed node by node.  A new kind of atom is one more method here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")  # what an expression becomes
B = TypeVar("B")  # what a condition becomes

Operator: TypeAlias = Literal["<=", "==", "!="]
Term: TypeAlias = tuple[int, Sequence[tuple[T, int]]]
"""A coefficient, and factors with their powers."""


class Algebra(ABC, Generic[T, B]):
    """An interpretation of sizes and conditions.

    `ordered` asks for terms in the order of degrees and names.  Where there is a `memo`, it holds what each
    expression became, and each becomes it once.
    """

    ordered: ClassVar[bool] = False
    memo: dict[Any, T] | None = None

    @abstractmethod
    def symbol(self, name: str) -> T:
        """The symbol `name`."""

    @abstractmethod
    def total(self, terms: Sequence[Term[T]]) -> T:
        """The sum of `terms`, of which there may be none."""

    @abstractmethod
    def floordiv(self, numerator: T, denominator: T) -> T:
        """`numerator // denominator`."""

    @abstractmethod
    def mod(self, numerator: T, denominator: T) -> T:
        """`numerator % denominator`."""

    @abstractmethod
    def minimum(self, operands: Sequence[T]) -> T:
        """The least of two or more."""

    @abstractmethod
    def maximum(self, operands: Sequence[T]) -> T:
        """The greatest of two or more."""

    @abstractmethod
    def select(self, condition: B, then: T, otherwise: T) -> T:
        """`then` where `condition` holds, else `otherwise`."""

    @abstractmethod
    def relation(self, operator: Operator, terms: Sequence[Term[T]]) -> B:
        """`terms operator 0`."""

    @abstractmethod
    def conjunction(self, operands: Sequence[B]) -> B:
        """All of `operands`; true for none."""

    @abstractmethod
    def disjunction(self, operands: Sequence[B]) -> B:
        """Some of `operands`; false for none."""

    def difference(self, terms: Sequence[Term[T]]) -> tuple[T, T]:
        """The terms with a positive coefficient, and those with a negative one, negated: `left op right`."""
        positive = [term for term in terms if term[0] > 0]
        return self.total(positive), self.total([(-c, factors) for c, factors in terms if c < 0])
