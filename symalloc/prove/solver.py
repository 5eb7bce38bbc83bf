"""Layer `z3`: the judge of last resort, under a budget."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from symalloc.prove.bounds import Box
from symalloc.prove.budget import Budget
from symalloc.size.condition import Condition

__all__ = ["Answer", "Solver"]

TACTIC = ("simplify", "propagate-values", "solve-eqs", "elim-uncnstr", "smt")
SHARE = 2 / 3  # of the time left that one question may take: the other side of a claim is asked next


class Answer:
    """`unsatisfiable`, or a `point` that satisfies the question, or neither: not decided in the budget."""

    __slots__ = ("point", "unsatisfiable")

    def __init__(self, *, unsatisfiable: bool = False, point: dict[str, int] | None = None) -> None:
        self.unsatisfiable, self.point = unsatisfiable, point


class Solver:
    """Asks z3, which is imported at the first question; one context and one tactic for all of them."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.asked = 0
        self._left = float(budget.z3_milliseconds)
        self._tactic: Any = None

    def begin(self) -> None:
        """Start another proof: the questions from here on share one budget of time."""
        self._left = float(self.budget.z3_milliseconds)

    def ask(self, conditions: Sequence[Condition], box: Box) -> Answer:
        """Whether some point of `box` satisfies all `conditions`; a point is checked by exact evaluation."""
        milliseconds = int(self._left * SHARE)
        if milliseconds <= 0:
            return Answer()
        self.asked += 1
        self._tactic = self._tactic or _tactic()  # before the clock starts: importing z3 takes a while
        start = perf_counter()
        try:
            return self._ask(conditions, box, milliseconds)
        finally:
            self._left -= 1e3 * (perf_counter() - start)

    def _ask(self, conditions: Sequence[Condition], box: Box, milliseconds: int) -> Answer:
        import z3

        from symalloc.prove.z3_form import Translator

        translator = Translator()
        solver = self._solver(milliseconds)
        for name, low in box.lower.items():
            solver.add(*translator.bounds(name, low, box.upper[name]))
        solver.add(*map(translator.condition, conditions))
        try:
            outcome = solver.check()
        except z3.Z3Exception:
            return Answer()
        if outcome == z3.unsat:
            return Answer(unsatisfiable=True)
        if outcome != z3.sat:
            return Answer()
        point = translator.read(solver.model(), box.lower)
        return (
            Answer(point=point)
            if box.holds(point) and all(c.evaluate(point) for c in conditions)
            else Answer()
        )

    def _solver(self, milliseconds: int) -> Any:
        solver = self._tactic.solver()
        # with z3's own handler an interrupt would only end the question, and the program would go on
        solver.set("timeout", milliseconds, "ctrl_c", False, "rlimit", self.budget.z3_steps)
        return solver


def _tactic() -> Any:
    import z3

    return z3.Then(*TACTIC)
