"""Layer `z3`: the judge of last resort, under a budget."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, Literal, TypeAlias

from symalloc.prover.bounds import Box
from symalloc.prover.budget import Budget
from symalloc.size.condition import Condition

TACTIC = ("simplify", "propagate-values", "solve-eqs", "elim-uncnstr", "smt")
SHARE = 2 / 3  # of the steps left that one question may take: the other side of a claim is asked next
FEWEST = 500  # steps for which a question is worth asking


Answer: TypeAlias = dict[str, int] | Literal["z3"] | None


class Solver:
    """Asks z3, which is imported at the first question; one context and one tactic for all of them."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.asked = 0
        self._tactic: Any = None
        self.begin()

    def begin(self) -> None:
        """Start another proof: the questions from here on share one budget."""
        self._steps = self.budget.z3_steps
        self._milliseconds = float(self.budget.z3_milliseconds)

    def ask(self, conditions: Sequence[Condition], box: Box) -> Answer:
        """Look for a point of `box` that satisfies all `conditions`; it is checked by exact evaluation.

        Return "z3" where there is none, and None where that was not decided in the budget.

        What ends a question in vain is the number of its steps, which no load changes, and only in the last
        resort the clock; such a question costs the proof its share of the steps.
        """
        steps = int(self._steps * SHARE)
        if steps < FEWEST or self._milliseconds < 1:
            return None
        self.asked += 1
        self._tactic = self._tactic or _tactic()  # before the clock starts: importing z3 takes a while
        start = perf_counter()
        answer = self._ask(conditions, box, steps)
        self._milliseconds -= 1e3 * (perf_counter() - start)
        if answer is None:
            self._steps -= steps
        return answer

    def _ask(self, conditions: Sequence[Condition], box: Box, steps: int) -> Answer:
        import z3

        from symalloc.prover.z3_form import Z3Terms, read_point

        solver = self._solver(steps)
        for name, low in box.lower.items():
            solver.add(z3.Int(name) >= low, z3.Int(name) <= box.upper[name])
        solver.add(*(c.fold(Z3Terms()) for c in conditions))
        try:
            outcome = solver.check()
        except z3.Z3Exception:
            return None
        if outcome == z3.unsat:
            return "z3"
        if outcome != z3.sat:
            return None
        point = read_point(solver.model(), box.lower)
        return point if box.holds(point) and all(c.evaluate(point) for c in conditions) else None

    def _solver(self, steps: int) -> Any:
        solver = self._tactic.solver()
        # with z3's own handler an interrupt would only end the question, and the program would go on
        solver.set("timeout", int(self._milliseconds), "ctrl_c", False, "rlimit", steps)
        return solver


def _tactic() -> Any:
    import z3

    return z3.Then(*TACTIC)
