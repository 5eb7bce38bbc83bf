"""Layer `z3`: the judge of last resort, under a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symalloc.prove.bounds import Box
from symalloc.prove.budget import Budget
from symalloc.size.condition import Condition

__all__ = ["Answer", "Solver"]

TACTIC = ("simplify", "propagate-values", "solve-eqs", "elim-uncnstr", "smt")


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
        self._tactic: Any = None

    def ask(self, conditions: Sequence[Condition], box: Box) -> Answer:
        """Whether some point of `box` satisfies all `conditions`; a point is checked by exact evaluation."""
        if self.budget.z3_milliseconds <= 0:
            return Answer()
        import z3

        from symalloc.prove.z3_form import Translator

        self.asked += 1
        translator = Translator()
        solver = self._solver()
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

    def _solver(self) -> Any:
        import z3

        if self._tactic is None:
            self._tactic = z3.Then(*TACTIC)
        solver = self._tactic.solver()
        # with z3's own handler an interrupt would only end the question, and the program would go on
        solver.set("timeout", self.budget.z3_milliseconds, "ctrl_c", False, "rlimit", self.budget.z3_steps)
        return solver
