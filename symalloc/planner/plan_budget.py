"""The one budget of planning a function: counted, so that the same plan comes under any load."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from symalloc.planner.planner_options import EffortName

BASE, EACH = 1_300_000, 1_500  # of the effort "quick": for a function, and for each of its tensors
TIMES: Mapping[EffortName, int] = {"quick": 1, "normal": 20, "thorough": 400}


class PlanBudget:
    """The work that is left: numbers, pairs or terms looked at one by one; many at once count less.

    The search for stackings, the choice between them, their formulas and the proof all spend it.  Once it is
    `exhausted` each takes what it has, and the planner goes down its ladder.
    """

    __slots__ = ("allowed", "spent")

    def __init__(self, allowed: float = inf) -> None:
        self.allowed, self.spent = allowed, 0

    @classmethod
    def of(cls, effort: EffortName, tensors: int) -> PlanBudget:
        """Return the budget that an effort gives a function with so many tensors."""
        return cls(TIMES[effort] * (BASE + EACH * tensors))

    def spend(self, work: int) -> None:
        """Count `work` that is done."""
        self.spent += work

    @property
    def exhausted(self) -> bool:
        """True once all of it is spent."""
        return self.spent > self.allowed
