"""One model built in several ways, each on a machine that counts what it allocates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import tvm
from tvm import relax
from tvm.relax import transform

from symalloc.planner.planner_options import PlanOptions
from symalloc.relax.passes.pipeline import finishing_pipeline, lower, pipeline
from symalloc.relax.passes.plan_pass import PlannedModule, plan_lowered
from tests.models.measure import ALLOCATOR
from tests.models.planned.case import Case

__all__ = ["Machine", "Variants"]

Machine: TypeAlias = relax.VirtualMachine


@dataclass(frozen=True)
class Variants:
    """A case's module: unplanned, planned by this project, planned by TVM.  Each is built when it is first
    asked for, for `target`.
    """

    case: Case
    target: str | tvm.target.Target = "llvm"

    @cached_property
    def module(self) -> tvm.IRModule:
        """What is compiled."""
        return self.case.build()

    @cached_property
    def ours(self) -> Machine:
        """Planned by PlanMemory, in TVM's pipeline."""
        return self._machine(self.module, pipeline(self.target, pipeline=self.case.pipeline))

    @cached_property
    def unguarded(self) -> Machine:
        """The same without checks at entry."""
        passes = pipeline(self.target, pipeline=self.case.pipeline, options=PlanOptions(guards="none"))
        return self._machine(self.module, passes)

    @cached_property
    def unplanned(self) -> Machine:
        """Every tensor has a storage of its own, freed behind its last use."""
        lowered = lower(self.module, self.target, pipeline=self.case.pipeline)
        return self._machine(lowered, finishing_pipeline(self.target, pipeline=self.case.pipeline))

    @cached_property
    def theirs(self) -> tuple[Machine, Machine | None]:
        """Planned by TVM's StaticPlanBlockMemory: without upper bounds, and, where some are declared, with
        them.
        """
        free = self._machine(self._without_bounds(), self._stock())
        return free, self._machine(self.module, self._stock()) if self.case.declared else None

    @cached_property
    def planned(self) -> PlannedModule:
        """What PlanMemory makes of the lowered module."""
        return plan_lowered(lower(self.module, self.target, pipeline=self.case.pipeline))

    @cached_property
    def settled(self) -> tvm.IRModule:
        """The planned module as TVM leaves it behind the passes that touch memory."""
        passes = [transform.LowerAllocTensor(), transform.KillAfterLastUse()]
        return tvm.transform.Sequential(passes)(self.planned.module)

    @property
    def device(self) -> list[tvm.runtime.Device]:
        """What the machines run on."""
        return [tvm.cpu(index) for index in range(self.case.devices)]

    def _machine(self, module: tvm.IRModule, passes: Any) -> Machine:
        executable = relax.build(module, self.target, relax_pipeline=passes)
        return relax.VirtualMachine(executable, self.device, memory_cfg=dict.fromkeys(self.device, ALLOCATOR))

    def _stock(self) -> Any:
        if self.case.pipeline == "default":
            return "default"
        return relax.get_default_pipeline(tvm.target.Target(self.target))

    def _without_bounds(self) -> tvm.IRModule:
        if not self.case.declared:
            return self.module
        changed = self.module.clone()
        function = changed[self.case.function].without_attr("tir_var_upper_bound")
        changed.update_func(changed.get_global_var(self.case.function), function)
        return changed
