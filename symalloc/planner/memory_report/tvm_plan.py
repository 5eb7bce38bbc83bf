"""TVM's own memory plan of the same module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symalloc.planner.memory_report.sample_bindings import total
from symalloc.size.expr import Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class TvmPlan:
    """StaticPlanBlockMemory's plan of one function, in bytes.

    `storages` holds a size for each storage (None where it has no exact form), `fresh` one for each tensor
    that is left with memory of its own, or that a called function returns, and that is not returned.
    `calls` holds, for each call of another function, what that reserves.  `problem` says why there is no
    plan.
    """

    storages: tuple[Expr | None, ...] = ()
    fresh: tuple[Expr | None, ...] = ()
    calls: tuple[tuple[Expr | None, ...], ...] = ()
    problem: str | None = None

    def reserved(self, binding: Mapping[str, int]) -> int | None:
        """The sum of storages and fresh tensors, and the most that one of the calls reserves; None where a
        size is not known at `binding`.
        """
        own = total((*self.storages, *self.fresh), binding)
        calls = [total(sizes, binding) for sizes in self.calls]
        if self.problem is not None or own is None or None in calls:
            return None
        return own + max((size for size in calls if size is not None), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TvmComparison:
    """TVM's plan with the bounds that the function declares (None where it declares none), and without."""

    bounded: TvmPlan | None
    unbounded: TvmPlan
