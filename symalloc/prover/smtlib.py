"""Proofs as SMT-LIB2 scripts that another solver can replay.

A script asserts the domain and what the verdict excludes: the claim's failure where it is always valid, its
truth where it is always invalid; the answer must then be `unsat`.  A run-time check comes as the claim's
failure, to be answered `sat`. Divisors are at least 1 wherever they matter, so that SMT-LIB's `div` and
`mod` agree with floor division.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from symalloc.prover.domain import Domain
from symalloc.prover.verdict import Proof, Verdict
from symalloc.size.atoms import Atom, FloorDiv, Max, Min, Mod, Monomial, Select, Symbol
from symalloc.size.condition import And, Condition, Or, Relation
from symalloc.size.defined import fails, holds
from symalloc.size.expr import Expr

__all__ = ["certificate", "status"]

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
    lines += (f"(assert {_condition(holds(a, _unproved))})" for a in domain.assumptions)
    lines += _question(constraint, proof)
    return "\n".join((*lines, "(check-sat)", ""))


def _question(constraint: Condition, proof: Proof) -> Iterable[str]:
    if proof.verdict is Verdict.VACUOUS:
        return ("; the assumptions alone",)
    if proof.verdict is Verdict.ALWAYS_INVALID:
        return ("; the claim", f"(assert {_condition(holds(constraint, _unproved))})")
    return ("; the claim fails", f"(assert {_condition(fails(constraint, _unproved))})")


def status(proof: Proof) -> Status:
    """What a solver is expected to answer to the script for `proof`."""
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


def _condition(condition: Condition) -> str:
    match condition:
        case Relation(operator="<=", expr=expr):
            return f"(<= {_expr(expr)} 0)"
        case Relation(operator="==", expr=expr):
            return f"(= {_expr(expr)} 0)"
        case Relation(expr=expr):
            return f"(distinct {_expr(expr)} 0)"
        case And(operands=operands):
            return _apply("and", map(_condition, operands), "true")
        case Or(operands=operands):
            return _apply("or", map(_condition, operands), "false")
    raise TypeError(f"not a condition: {condition!r}")


def _expr(expr: Expr) -> str:
    return _apply("+", (_term(m, c) for m, c in expr.terms.items()), "0")


def _term(monomial: Monomial, coefficient: int) -> str:
    factors = [_atom(atom) for atom, power in monomial for _ in range(power)]
    if coefficient != 1 or not factors:
        factors.insert(0, _integer(coefficient))
    return _apply("*", factors, "1")


def _atom(atom: Atom) -> str:
    match atom:
        case Symbol(name=name):
            return _name(name)
        case FloorDiv(numerator=above, denominator=below):
            return f"(div {_expr(above)} {_expr(below)})"
        case Mod(numerator=above, denominator=below):
            return f"(mod {_expr(above)} {_expr(below)})"
        case Min(operands=operands):
            return _choose("<=", [_expr(e) for e in operands])
        case Max(operands=operands):
            return _choose(">=", [_expr(e) for e in operands])
        case Select(condition=test, then=then, otherwise=otherwise):
            return f"(ite {_condition(test)} {_expr(then)} {_expr(otherwise)})"


def _choose(operator: str, operands: list[str]) -> str:
    best = operands[0]
    for operand in operands[1:]:
        best = f"(ite ({operator} {best} {operand}) {best} {operand})"
    return best


def _apply(word: str, parts: Iterable[str], neutral: str) -> str:
    found = list(parts)
    if not found:
        return neutral
    return found[0] if len(found) == 1 else f"({word} {' '.join(found)})"
