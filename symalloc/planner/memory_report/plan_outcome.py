"""The memory of a call under each plan: ours, none, and TVM's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from symalloc.analysis.call_memory import CallMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """A call of one function as it was planned (`planned`), and with no plan at all (`unplanned`).

    `fallback`: a call that the check at entry refuses runs without the plan.
    """

    planned: CallMemory
    unplanned: CallMemory
    fallback: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TvmPlan:
    """A call of one function behind StaticPlanBlockMemory; `problem` says why there is no plan."""

    memory: CallMemory = field(default_factory=CallMemory)
    problem: str | None = None

    def peak(self, binding: Mapping[str, int], *, results: bool) -> int | None:
        """See `CallMemory.peak`; None where there is no plan."""
        return None if self.problem is not None else self.memory.peak(binding, results=results)


@dataclass(frozen=True, slots=True, kw_only=True)
class TvmComparison:
    """TVM's plan with the bounds that the function declares (None where it declares none), and without."""

    bounded: TvmPlan | None
    unbounded: TvmPlan
