"""Layer `z3`: the judge of last resort, under a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from symalloc.prover.bounds import Box
from symalloc.prover.domain import Budget
from symalloc.prover.smtlib import asserted, declared, encoded
from symalloc.size.condition import Condition

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
    least 1, and the conditions given here hold no other divisor where they matter (`symalloc.size.defined`).
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
