"""Layer `z3`, the judge of last resort, and proofs as SMT-LIB2 scripts that another solver can replay.

A script asserts the domain and what the verdict excludes: the claim's failure where it is always valid, its
truth where it is always invalid; the answer must then be `unsat`.  A run-time check comes as the claim's
failure, to be answered `sat`. Divisors are at least 1 wherever they matter, so that SMT-LIB's `div` and
`mod` agree with floor division.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Literal, TypeAlias

from symalloc.prover.domain import Box, Budget, Domain, Proof, Verdict
from symalloc.size.algebra import Algebra, Operator, Term
from symalloc.size.choice import fails, holds
from symalloc.size.condition import Condition
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


TACTIC = ("simplify", "propagate-values", "solve-eqs", "elim-uncnstr", "smt")
SHARE = 2 / 3  # of the steps left that one question may take: the other side of a claim is asked next
FEWEST = 500  # steps for which a question is worth asking
_CEILING = 60_000  # milliseconds of a question, if ever z3 works without counting its steps


Answer: TypeAlias = dict[str, int] | Literal["z3"] | None


class Solver:
    """Asks z3, which is imported at the first question.

    Each proof has a context of its own (4 ms): what z3 does depends on all that its context was asked before.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.asked = 0
        self.begin()

    def begin(self) -> None:
        """Start another proof: the questions from here on share one budget and one context."""
        self._steps = self.budget.z3_steps
        self._z3: Z3 | None = None

    def ask(self, conditions: Sequence[Condition], box: Box) -> Answer:
        """Look for a point of `box` that satisfies all `conditions`; it is checked by exact evaluation.

        Return "z3" where there is none, and None where that was not decided in the budget.

        What ends a question in vain is the number of its steps, which no load changes; such a question costs
        the proof its share of the steps.
        """
        steps = int(self._steps * SHARE)
        if steps < FEWEST:
            return None
        self.asked += 1
        self._z3 = self._z3 or Z3()
        answer = self._z3.answer(conditions, box, steps)
        if answer is None:
            self._steps -= steps
        return answer


class Z3:
    """A context of z3 and a solver for one question after the other, which it reads as SMT-LIB (`smtlib`).

    Its integer division rounds so that the remainder is not negative; that is Python's for divisors of at
    least 1, and the conditions given here hold no other divisor where they matter (`symalloc.size.choice`).
    """

    def __init__(self) -> None:
        import z3

        self.z3, self.context = z3, z3.Context()
        self._tactic = z3.Then(*TACTIC, ctx=self.context)

    def answer(self, conditions: Sequence[Condition], box: Box, steps: int) -> Answer:
        """As `Solver.ask`, within `steps`."""
        solver = self._tactic.solver()
        # with z3's own handler an interrupt would only end the question, and the program would go on
        solver.set("timeout", _CEILING, "ctrl_c", False, "rlimit", steps)
        bounds = {name: (low, box.upper[name]) for name, low in box.lower.items()}
        try:
            solver.from_string("\n".join((*declared(bounds), *asserted(conditions))))
            outcome = solver.check()
        except self.z3.Z3Exception:
            return None
        if outcome == self.z3.unsat:
            return "z3"
        if outcome != self.z3.sat:
            return None
        model = solver.model()
        values = {name: model.eval(self.z3.Int(encoded(name), self.context)) for name in box.lower}
        point = {n: v.as_long() if self.z3.is_int_value(v) else box.lower[n] for n, v in values.items()}
        return point if box.holds(point) and all(c.evaluate(point) for c in conditions) else None
