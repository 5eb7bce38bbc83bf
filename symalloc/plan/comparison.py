"""What TVM's own planner reserves for the same module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symalloc.plan.sampling import total
from symalloc.size.expr import Expr

__all__ = ["Comparison", "TvmPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TvmPlan:
    """StaticPlanBlockMemory's plan of one function, in bytes.

    `storages` holds a size for each storage (None where it has no exact form), `fresh` one for each tensor
    that it leaves with memory of its own and that is not returned.  `problem` says why there is no plan.
    """

    storages: tuple[Expr | None, ...] = ()
    fresh: tuple[Expr | None, ...] = ()
    problem: str | None = None

    def reserved(self, binding: Mapping[str, int]) -> int | None:
        """The sum of all of them, results left out; None where a size is not known at `binding`."""
        return None if self.problem is not None else total((*self.storages, *self.fresh), binding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """TVM's plan with the bounds that the function declares (None where it declares none), and without."""

    bounded: TvmPlan | None
    unbounded: TvmPlan
