"""Proofs as SMT-LIB2 scripts that another solver can replay.

A script asserts the domain and what the verdict excludes: the claim's failure where it is always valid, its
truth where it is always invalid; the answer must then be `unsat`.  A run-time check comes as the claim's
failure, to be answered `sat`. Divisors are at least 1 wherever they matter, so that SMT-LIB's `div` and
`mod` agree with floor division.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Literal

from symalloc.prover.domain import Domain, Proof, Verdict
from symalloc.size.algebra import Algebra, Operator, Term
from symalloc.size.condition import Condition
from symalloc.size.defined import fails, holds
from symalloc.size.expr import Expr

Status = Literal["sat", "unsat", "unknown"]
_UNQUOTABLE = re.compile(r"[|\\%\x00\ud800-\udfff]")


def certificate(constraint: Condition, domain: Domain, proof: Proof) -> str:
    """The script for `proof` of `constraint` over `domain`."""
    symbols = sorted(constraint.symbols.union(*(a.symbols for a in domain.assumptions)))
    bounds = {s: (domain.lower_of(s), domain.upper_of(s)) for s in symbols}
    lines = [
        f"; {' '.join(str(constraint).split())}",
        f"; {proof.verdict.value}, decided by {proof.decided_by}",
        f"; expected: {status(proof)}",
        f"(set-info :status {status(proof)})",
        "(set-logic ALL)",
        *declared(bounds),
        *asserted(holds(a, _unproved) for a in domain.assumptions),
        *_question(constraint, proof),
        "(check-sat)",
        "",
    ]
    return "\n".join(lines)


def declared(bounds: Mapping[str, tuple[int, int]]) -> list[str]:
    """Declare integers, and assert that they lie within their bounds."""
    ranges = ((_integer(low), _quoted(s), _integer(high)) for s, (low, high) in bounds.items())
    return [
        *(f"(declare-const {_quoted(s)} Int)" for s in bounds),
        *(f"(assert (<= {low} {text} {high}))" for low, text, high in ranges),
    ]


def asserted(conditions: Iterable[Condition]) -> list[str]:
    """Assert each of `conditions`."""
    return [f"(assert {c.fold(_SMT_LIB)})" for c in conditions]


def term(part: Expr | Condition) -> str:
    """The term for a size, or for a condition."""
    return part.fold(_SMT_LIB)


def _question(constraint: Condition, proof: Proof) -> Sequence[str]:
    if proof.verdict is Verdict.VACUOUS:
        return ("; the assumptions alone",)
    if proof.verdict is Verdict.ALWAYS_INVALID:
        return ("; the claim", *asserted([holds(constraint, _unproved)]))
    return ("; the claim fails", *asserted([fails(constraint, _unproved)]))


def status(proof: Proof) -> Status:
    """The answer that a solver is expected to give to the script for `proof`."""
    if proof.verdict is not Verdict.RUNTIME_CHECK:
        return "unsat"
    return "unknown" if proof.counterexample is None else "sat"


def _unproved(_divisor: Expr) -> bool:
    return False


def encoded(symbol: str) -> str:
    """The name of a symbol in scripts, with other characters for those that no name may hold there."""
    return _UNQUOTABLE.sub(lambda found: f"%{ord(found[0]):x};", symbol)


def _quoted(symbol: str) -> str:
    return f"|{encoded(symbol)}|"


def _integer(value: int) -> str:
    return str(value) if value >= 0 else f"(- {-value})"


class _SmtLib(Algebra[str, str]):
    """SMT-LIB's prefix notation; equal sizes give one text."""

    ordered = True

    def symbol(self, name: str) -> str:
        return _quoted(name)

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
        return reduce(partial(_chosen, "<="), operands)

    def maximum(self, operands: Sequence[str]) -> str:
        return reduce(partial(_chosen, ">="), operands)

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


def _chosen(relation: str, left: str, right: str) -> str:
    """The first of two where they are in `relation`; each is written once, or chains would double in length.

    No symbol has such names: a `%` in one is encoded.
    """
    return f"(let ((%a {left}) (%b {right})) (ite ({relation} %a %b) %a %b))"


def _apply(word: str, parts: Sequence[str], neutral: str) -> str:
    if not parts:
        return neutral
    return parts[0] if len(parts) == 1 else f"({word} {' '.join(parts)})"
