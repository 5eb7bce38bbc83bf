"""Notations: sizes and conditions as text, one class of strings for each language.

Python is the base.  Another language says what differs: its signs, the words of its functions, and how it
writes a choice or a comparison.  What Python's notation writes reads back (`symalloc.size.parse`) as an
equal expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from symalloc.size.algebra import Algebra, Operator, Term

_SUM, _QUOTIENT, _SCALED, _PRODUCT, _CALL = range(5)  # how tightly a text binds
_AND, _OR = range(2)


class Phrase(NamedTuple):
    """A text, and how tightly it binds."""

    text: str
    level: int = _CALL


class Notation(Algebra[Phrase, Phrase]):
    """Python's notation: `4*m`, `h % 16 == 0`, `min(n, 8)`, `n if n <= 8 else 8`."""

    ordered: ClassVar[bool] = True
    times: ClassVar[str] = "*"
    power: ClassVar[str | None] = "**"  # None: a power is a repeated factor
    minus: ClassVar[str] = "-"  # before a sum that starts with a negative term
    coefficient_first: ClassVar[bool] = True
    bare_quotients: ClassVar[bool] = True  # they bind like `*` and from the left; else they are in brackets
    least: ClassVar[str] = "min"
    greatest: ClassVar[str] = "max"
    binary: ClassVar[bool] = False  # whether functions take two arguments, so that calls are nested

    def symbol(self, name: str) -> Phrase:
        return Phrase(name)

    def total(self, terms: Sequence[Term[Phrase]]) -> Phrase:
        if not terms:
            return Phrase("0")
        first, *rest = map(self._term, self.arranged(terms))
        if not rest and first[0] > 0:
            return first[1]
        text = ("" if first[0] > 0 else self.minus) + self._bracketed(first[1], _SCALED)
        for sign, term in rest:
            text += f" {'+' if sign > 0 else '-'} {self._bracketed(term, _SCALED)}"
        return Phrase(text, _SUM)

    def arranged(self, terms: Sequence[Term[Phrase]]) -> Sequence[Term[Phrase]]:
        """`terms` in the order in which they are written: a positive one in the lead."""
        lead = next((i for i, (coefficient, _) in enumerate(terms) if coefficient > 0), 0)
        return (terms[lead], *terms[:lead], *terms[lead + 1 :])

    def _term(self, term: Term[Phrase]) -> tuple[int, Phrase]:
        """The sign of `term`, and its text without it."""
        coefficient, factors = term
        size = abs(coefficient)
        if size == 1 and len(factors) == 1 and factors[0][1] == 1:
            return coefficient, factors[0][0]
        written = [self._factor(factor, power) for factor, power in factors]
        if size != 1 or not factors:
            written.insert(0 if self.coefficient_first else len(written), str(size))
        scaled = any(factor.level == _QUOTIENT for factor, _ in factors)
        level = _CALL if not factors else _SCALED if scaled else _PRODUCT
        return coefficient, Phrase(self.times.join(written), level)

    def _factor(self, factor: Phrase, power: int) -> str:
        text = self._bracketed(factor, _PRODUCT)
        if power == 1:
            return text
        return self.times.join([text] * power) if self.power is None else f"{text}{self.power}{power}"

    def _bracketed(self, operand: Phrase, least: int = _CALL) -> str:
        return operand.text if operand.level >= least else f"({operand.text})"

    def floordiv(self, numerator: Phrase, denominator: Phrase) -> Phrase:
        return self._divided("//", numerator, denominator)

    def mod(self, numerator: Phrase, denominator: Phrase) -> Phrase:
        return self._divided("%", numerator, denominator)

    def _divided(self, sign: str, numerator: Phrase, denominator: Phrase) -> Phrase:
        above = self._bracketed(numerator, _PRODUCT if self.bare_quotients else _CALL)
        text = f"{above} {sign} {self._bracketed(denominator)}"
        return Phrase(text, _QUOTIENT) if self.bare_quotients else Phrase(f"({text})")

    def minimum(self, operands: Sequence[Phrase]) -> Phrase:
        return self._call(self.least, operands)

    def maximum(self, operands: Sequence[Phrase]) -> Phrase:
        return self._call(self.greatest, operands)

    def _call(self, function: str, operands: Sequence[Phrase]) -> Phrase:
        """A call of `function`, or nested calls."""
        *others, text = (operand.text for operand in operands)
        if not self.binary:
            return Phrase(f"{function}({', '.join((*others, text))})")
        for other in reversed(others):
            text = f"{function}({other}, {text})"
        return Phrase(text)

    def select(self, condition: Phrase, then: Phrase, otherwise: Phrase) -> Phrase:
        return Phrase(f"({self._bracketed(then)} if {condition.text} else {self._bracketed(otherwise)})")

    def relation(self, operator: Operator, terms: Sequence[Term[Phrase]]) -> Phrase:
        """`left operator right`, with negative terms moved to the other side and a number to the right."""
        left = [term for term in terms if term[0] > 0]
        right = [(-c, factors) for c, factors in terms if c < 0]
        number = next((c for c, factors in left if not factors), 0)
        alone = len(left) == (number > 0)  # no symbol on the left
        if operator != "<=":
            left, right = (right, left) if alone else (left, right)
            return self._compared(left, operator, right)
        if alone:
            return self._compared(right, ">=", left)
        if number == 1:
            return self._compared([term for term in left if term[1]], "<", right)
        return self._compared(left, "<=", right)

    def _compared(self, left: Sequence[Term[Phrase]], operator: str, right: Sequence[Term[Phrase]]) -> Phrase:
        return Phrase(f"{self.total(left).text} {operator} {self.total(right).text}")

    def conjunction(self, operands: Sequence[Phrase]) -> Phrase:
        return self._joined(" and ", "True", operands, _AND)

    def disjunction(self, operands: Sequence[Phrase]) -> Phrase:
        return self._joined(" or ", "False", operands, _OR)

    def _joined(self, word: str, neutral: str, operands: Sequence[Phrase], level: int) -> Phrase:
        """`operands` joined by `word`; those joined by the other word in brackets."""
        texts = (f"({o.text})" if o.level == 1 - level else o.text for o in operands)
        return Phrase(word.join(texts) or neutral, level)


class TVMScript(Notation):
    """TVM's scripts: `m * 4` (products put the factor last, as shapes are read), `T.And(m <= 4, n <= 2)`."""

    ordered = False
    times, power, minus, coefficient_first = " * ", None, "0 - ", False
    bare_quotients = False
    least, greatest, binary = "T.min", "T.max", True

    def arranged(self, terms: Sequence[Term[Phrase]]) -> Sequence[Term[Phrase]]:
        return sorted(terms, key=lambda term: (term[0] < 0, not term[1]))

    def select(self, condition: Phrase, then: Phrase, otherwise: Phrase) -> Phrase:
        return Phrase(f"T.if_then_else({condition.text}, {then.text}, {otherwise.text})")

    def relation(self, operator: Operator, terms: Sequence[Term[Phrase]]) -> Phrase:
        number = sum(c for c, factors in terms if not factors)
        left = [term for term in terms if term[0] > 0 and term[1]]
        right = [(-c, factors) for c, factors in terms if c < 0 and factors]
        if not left and operator == "<=":
            return Phrase(f"{self.total(right).text} >= {number}")
        if not left:
            left, right, number = right, left, -number
        return self._compared(left, operator, [*right, (-number, ())] if number else right)

    def conjunction(self, operands: Sequence[Phrase]) -> Phrase:
        return self._call("T.And", operands)

    def disjunction(self, operands: Sequence[Phrase]) -> Phrase:
        return self._call("T.Or", operands)


PYTHON, TVMSCRIPT = Notation(), TVMScript()


class Written:
    """An expression or a condition, as notations and sympy write it; by default in Python's notation."""

    __slots__ = ()

    def fold(self, algebra: Algebra[Any, Any]) -> Any:
        """The value in `algebra`."""
        raise NotImplementedError

    def text(self, notation: Notation) -> str:
        """The text, as `notation` writes it."""
        found: Phrase = self.fold(notation)
        return found.text

    @cached_property
    def _plain(self) -> str:
        return self.text(PYTHON)

    def __str__(self) -> str:
        return self._plain

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def _sympy_(self) -> Any:
        from symalloc.size.sympy_terms import SympyTerms

        return self.fold(SympyTerms())

    def _latex(self, printer: Any) -> Any:
        return printer.doprint(self._sympy_())
