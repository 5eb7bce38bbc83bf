"""Proofs as SMT-LIB2 scripts that another solver can replay.

A script asserts the domain and what the verdict excludes: the claim's failure where it is always valid, its
truth where it is always invalid; the answer must then be `unsat`.  A run-time check comes as the claim's
failure, to be answered `sat`. Divisors are at least 1 wherever they matter, so that SMT-LIB's `div` and
`mod` agree with floor division.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Literal

from symalloc.prover.domain import Domain
from symalloc.prover.verdict import Proof, Verdict
from symalloc.size.algebra import Algebra, Operator, Term
from symalloc.size.condition import Condition
from symalloc.size.defined import fails, holds
from symalloc.size.expr import Expr

Status = Literal["sat", "unsat", "unknown"]


def certificate(constraint: Condition, domain: Domain, proof: Proof) -> str:
    """The script for `proof` of `constraint` over `domain`."""
    symbols = sorted(constraint.symbols.union(*(a.symbols for a in domain.assumptions)))
    lines = [
        f"; {_comment(str(constraint))}",
        f"; {proof.verdict.value}, decided by {proof.decided_by}",
        f"; expected: {status(proof)}",
        f"(set-info :status {status(proof)})",
        "(set-logic ALL)",
        *(f"(declare-const {_name(s)} Int)" for s in symbols),
    ]
    for symbol in symbols:
        low, high = domain.lower_of(symbol), domain.upper_of(symbol)
        lines.append(f"(assert (<= {_integer(low)} {_name(symbol)} {_integer(high)}))")
    lines += (f"(assert {holds(a, _unproved).fold(_SMT_LIB)})" for a in domain.assumptions)
    lines += _question(constraint, proof)
    return "\n".join((*lines, "(check-sat)", ""))


def _question(constraint: Condition, proof: Proof) -> Iterable[str]:
    if proof.verdict is Verdict.VACUOUS:
        return ("; the assumptions alone",)
    if proof.verdict is Verdict.ALWAYS_INVALID:
        return ("; the claim", f"(assert {holds(constraint, _unproved).fold(_SMT_LIB)})")
    return ("; the claim fails", f"(assert {fails(constraint, _unproved).fold(_SMT_LIB)})")


def status(proof: Proof) -> Status:
    """The answer that a solver is expected to give to the script for `proof`."""
    if proof.verdict is not Verdict.RUNTIME_CHECK:
        return "unsat"
    return "unknown" if proof.counterexample is None else "sat"


def _unproved(_divisor: Expr) -> bool:
    return False


def _comment(text: str) -> str:
    return " ".join(text.split())


def _name(symbol: str) -> str:
    return f"|{symbol.replace('|', '_')}|"


def _integer(value: int) -> str:
    return str(value) if value >= 0 else f"(- {-value})"


class _SmtLib(Algebra[str, str]):
    """SMT-LIB's prefix notation."""

    def symbol(self, name: str) -> str:
        return _name(name)

    def total(self, terms: Sequence[Term[str]]) -> str:
        return _apply("+", [self._term(*term) for term in terms], "0")

    def _term(self, coefficient: int, factors: Sequence[tuple[str, int]]) -> str:
        repeated = [factor for factor, power in factors for _ in range(power)]
        if coefficient != 1 or not factors:
            repeated.insert(0, _integer(coefficient))
        return _apply("*", repeated, "1")

    def floordiv(self, numerator: str, denominator: str) -> str:
        return f"(div {numerator} {denominator})"

    def mod(self, numerator: str, denominator: str) -> str:
        return f"(mod {numerator} {denominator})"

    def minimum(self, operands: Sequence[str]) -> str:
        return reduce(lambda a, b: f"(ite (<= {a} {b}) {a} {b})", operands)

    def maximum(self, operands: Sequence[str]) -> str:
        return reduce(lambda a, b: f"(ite (>= {a} {b}) {a} {b})", operands)

    def select(self, condition: str, then: str, otherwise: str) -> str:
        return f"(ite {condition} {then} {otherwise})"

    def relation(self, operator: Operator, terms: Sequence[Term[str]]) -> str:
        word = {"<=": "<=", "==": "=", "!=": "distinct"}[operator]
        return f"({word} {self.total(terms)} 0)"

    def conjunction(self, operands: Sequence[str]) -> str:
        return _apply("and", operands, "true")

    def disjunction(self, operands: Sequence[str]) -> str:
        return _apply("or", operands, "false")


_SMT_LIB = _SmtLib()


def _apply(word: str, parts: Sequence[str], neutral: str) -> str:
    if not parts:
        return neutral
    return parts[0] if len(parts) == 1 else f"({word} {' '.join(parts)})"
