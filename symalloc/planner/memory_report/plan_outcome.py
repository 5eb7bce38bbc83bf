"""The memory of a call under each plan: ours, none, and TVM's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from symalloc.analysis.register_machine import Reservation
from symalloc.analysis.timeline import Timeline
from symalloc.planner.memory_report.call_peak import Operators
from symalloc.planner.planned_program import PlannedProgram
from symalloc.program.ir import Var


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """A call of one function as it was planned (`planned`), and with no plan at all (`unplanned`).

    `arenas` are the storages of the plan that are not the memory of results.  `operators` are those that run
    without a plan.  `fallback`: a call that the check at entry refuses runs without the plan.
    """

    planned: Timeline = field(default_factory=Timeline)
    unplanned: Timeline = field(default_factory=Timeline)
    arenas: Collection[Var] = ()
    operators: Operators = field(default_factory=Operators)
    fallback: bool = False

    @property
    def reserved(self) -> Timeline:
        """The arenas alone, as they are held."""
        arenas = self.arenas
        return self.planned.only(lambda one: one.var in arenas and one.frame.caller is None)


def own_arenas(written: PlannedProgram) -> frozenset[Var]:
    """The storages of plans that are not the memory of results."""
    return frozenset(var for var, arena in written.arenas.items() if arena.result is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TvmPlan:
    """A call of one function behind StaticPlanBlockMemory; `problem` says why there is no plan."""

    memory: Timeline = field(default_factory=Timeline)
    problem: str | None = None

    @property
    def storages(self) -> list[Reservation]:
        """The storages of the function itself, less those that are results."""
        return [one for one in self.memory.taken() if one.why == "storage" and one.frame.caller is None]

    @property
    def fresh(self) -> list[Reservation]:
        """The tensors of the function itself that have memory of their own, less results."""
        kinds = ("tensor", "packed")
        return [one for one in self.memory.taken() if one.why in kinds and one.frame.caller is None]

    def peak(self, binding: Mapping[str, int], *, results: bool) -> int | None:
        """See `Timeline.peak`; None where there is no plan."""
        return None if self.problem is not None else self.memory.peak(binding, results=results)


@dataclass(frozen=True, slots=True, kw_only=True)
class TvmComparison:
    """TVM's plan with the bounds that the function declares (None where it declares none), and without."""

    bounded: TvmPlan | None
    unbounded: TvmPlan
