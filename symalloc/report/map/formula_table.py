"""Sizes and conditions as a table of nodes, which the page evaluates for any binding, in one pass.

A node is a list: its kind, then numbers of nodes before it.  Kinds are `["s", name]`, `["+", term, …]` with
terms `[coefficient, node, power, node, power, …]`, `["//", a, b]`, `["%", a, b]`, `["min", …]`, `["max", …]`,
`["if", condition, a, b]`, `["0", a]` (zero, once `a` is evaluated), `["<=", a]`, `["==", a]`, `["!=", a]`
(compared with 0), `["and", …]` and `["or", …]`.  Nothing in a table is code, whatever symbols are called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from symalloc.size.algebra import Algebra, Operator, Term
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr

SAFE = 2**53 - 1  # a larger integer is no number of JavaScript's: it is written as text
Node: TypeAlias = list[Any]


def exact(number: int) -> int | str:
    """Return `number` as JSON that a browser reads without loss."""
    return number if -SAFE <= number <= SAFE else str(number)


class FormulaTable(Algebra[int, int]):
    """Collects formulas; each distinct node is in `nodes` once, behind those that it is made of.

    `formulas` holds the text and the node of each formula, by the numbers that `add` returns; `symbols` the
    names in the formulas added since it was last emptied.
    """

    ordered = True

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.formulas: list[tuple[str, int]] = []
        self.symbols: set[str] = set()
        self.memo = {}
        self._numbers: dict[Expr | Condition, int] = {}
        self._known: dict[str, int] = {}

    def add(self, formula: Expr | Condition) -> int:
        """Return the number of `formula`, which is added where it is new."""
        self.symbols |= formula.symbols
        number = self._numbers.get(formula)
        if number is None:
            number = self._numbers[formula] = len(self.formulas)
            self.formulas.append((str(formula), formula.fold(self)))
        return number

    def _node(self, *node: Any) -> int:
        number = self._known.setdefault(repr(node), len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(list(node))
        return number

    def symbol(self, name: str) -> int:
        return self._node("s", name)

    def total(self, terms: Sequence[Term[int]]) -> int:
        return self._node("+", *([exact(c), *(part for f in factors for part in f)] for c, factors in terms))

    def floordiv(self, numerator: int, denominator: int) -> int:
        return self._node("//", numerator, denominator)

    def mod(self, numerator: int, denominator: int) -> int:
        return self._node("%", numerator, denominator)

    def minimum(self, operands: Sequence[int]) -> int:
        return self._node("min", *operands)

    def maximum(self, operands: Sequence[int]) -> int:
        return self._node("max", *operands)

    def select(self, condition: int, then: int, otherwise: int) -> int:
        return self._node("if", condition, then, otherwise)

    def discarded(self, operand: int) -> int:
        return self._node("0", operand)

    def relation(self, operator: Operator, terms: Sequence[Term[int]]) -> int:
        return self._node(operator, self.total(terms))

    def conjunction(self, operands: Sequence[int]) -> int:
        return self._node("and", *operands)

    def disjunction(self, operands: Sequence[int]) -> int:
        return self._node("or", *operands)
