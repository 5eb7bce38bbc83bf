"""Machines that a lowered module runs on: planned by one or the other, on a pool or an allocator of TVM's."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax import transform

from symalloc.pool.observing.instrumented_pool import InstrumentedPool
from symalloc.relax.files.result import PipelineName, RunError
from symalloc.relax.passes.name_tensors import NameTensors
from symalloc.relax.passes.pipeline import finishing_pipeline
from symalloc.relax.run.memory_cfg import HookError, memory_cfg
from symalloc.relax.tvm_error import error_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """Builds modules as CallTIRRewrite, or a planner behind it, leaves them."""

    target: str
    pipeline: PipelineName

    def machine(self, lowered: tvm.IRModule, memory: InstrumentedPool | str) -> relax.VirtualMachine:
        """A machine on `memory`, a pool or the name of an allocator of TVM's; raises RunError.

        For a pool, what is allocated is named.
        """
        if isinstance(memory, str):
            return self._built(lowered, memory)
        named = tvm.transform.Sequential([transform.LowerAllocTensor(), NameTensors()])(lowered)
        try:
            return self._built(named, memory_cfg(memory))
        except HookError as error:
            raise RunError(str(error)) from None

    def _built(self, lowered: tvm.IRModule, memory: str | dict[object, int]) -> relax.VirtualMachine:
        finishing = finishing_pipeline(self.target, flavour=self.pipeline)
        try:
            built = relax.build(lowered, self.target, relax_pipeline=finishing)
            return relax.VirtualMachine(built, tvm.cpu(), memory_cfg=memory)
        except Exception as error:  # the code generator and the linker raise several kinds
            raise RunError(f"TVM cannot build the module: {error_text(error)}") from None


def planned_by_tvm(lowered: tvm.IRModule) -> tvm.IRModule:
    """`lowered` behind StaticPlanBlockMemory; raises RunError."""
    try:
        return transform.StaticPlanBlockMemory()(lowered)
    except Exception as error:  # a pass raises whatever it raises
        raise RunError(f"StaticPlanBlockMemory fails: {error_text(error)}") from None
