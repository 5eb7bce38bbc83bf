"""One model built in several ways, each on a machine that counts what it allocates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import tvm
from tvm import relax
from tvm.relax import transform

from symalloc.planner.memory_plan import PlanOptions
from symalloc.relax.passes.pipeline import finishing_pipeline, lower, pipeline
from symalloc.relax.passes.plan_pass import PlannedModule, plan_lowered
from tests.models.measure import ALLOCATOR
from tests.models.planned.case import Case

__all__ = ["Kind", "Machine", "Variants"]

Machine: TypeAlias = relax.VirtualMachine


Kind: TypeAlias = Literal["unplanned", "ours", "safe", "full", "unguarded", "tvm", "tvm without bounds"]


@dataclass(frozen=True)
class Variants:
    """A case's module: unplanned, planned by this project (as it is, or with its kernels shrunk), planned by
    TVM.  Each is built when it is first
    asked for, for `target`.
    """

    case: Case
    target: str | tvm.target.Target = "llvm"
    executables: dict[Kind, Any] = field(default_factory=dict)

    @cached_property
    def module(self) -> tvm.IRModule:
        """What is compiled."""
        return self.case.build()

    @cached_property
    def ours(self) -> Machine:
        """Planned by PlanMemory, in TVM's pipeline."""
        return self.machine("ours")

    @cached_property
    def unguarded(self) -> Machine:
        """The same without checks at entry."""
        return self.machine("unguarded")

    @cached_property
    def unplanned(self) -> Machine:
        """Every tensor has a storage of its own, freed behind its last use."""
        return self.machine("unplanned")

    @cached_property
    def theirs(self) -> tuple[Machine, Machine | None]:
        """Planned by TVM's StaticPlanBlockMemory: without upper bounds, and, where some are declared, with
        them.
        """
        return self.machine("tvm without bounds"), self.machine("tvm") if self.case.declared else None

    @cached_property
    def lowered(self) -> tvm.IRModule:
        """What planners get."""
        return lower(self.module, self.target, pipeline=self.case.pipeline)

    @cached_property
    def planned(self) -> PlannedModule:
        """What PlanMemory makes of the lowered module."""
        return plan_lowered(self.lowered)

    @cached_property
    def settled(self) -> tvm.IRModule:
        """The planned module as TVM leaves it behind the passes that touch memory."""
        passes = [transform.LowerAllocTensor(), transform.KillAfterLastUse()]
        return tvm.transform.Sequential(passes)(self.planned.module)

    @property
    def device(self) -> list[tvm.runtime.Device]:
        """What the machines run on."""
        kind = int(tvm.target.Target(self.target).get_target_device_type())
        return [tvm.runtime.Device(kind, index) for index in range(self.case.devices)]

    def machine(self, kind: Kind, memory: int | str = ALLOCATOR) -> Machine:
        """A new machine whose memory is counted, or comes from TVM's allocator `memory`."""
        if kind not in self.executables:
            self.executables[kind] = self.build(kind)
        self.device[0].sync()  # a GPU's context is current from then on: constants are allocated in it
        given = memory if isinstance(memory, str) else dict.fromkeys(self.device, memory)
        return relax.VirtualMachine(self.executables[kind], self.device, memory_cfg=given)

    def build(self, kind: Kind) -> Any:
        """The executable, built anew."""
        base = self.case.pipeline
        passes: dict[Kind, Callable[[], Any]] = {
            "unplanned": lambda: finishing_pipeline(self.target, pipeline=base),
            "ours": lambda: pipeline(self.target, pipeline=base),
            "safe": lambda: pipeline(self.target, pipeline=base, options=PlanOptions(shrink="safe")),
            "full": lambda: pipeline(self.target, pipeline=base, options=PlanOptions(shrink="full")),
            "unguarded": lambda: pipeline(self.target, pipeline=base, options=PlanOptions(guards="none")),
            "tvm": self._stock,
            "tvm without bounds": self._stock,
        }
        module = {"unplanned": lambda: self.lowered, "tvm without bounds": self._without_bounds}
        chosen = module.get(kind, lambda: self.module)()
        return relax.build(chosen, self.target, relax_pipeline=passes[kind]())

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
