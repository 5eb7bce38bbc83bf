"""What a target's devices can do with memory, and the flavour that follows from it."""

from __future__ import annotations

import pytest
import tvm
from tvm.relax.global_info import VDevice
from tvm.target import Target

from symalloc.errors import RunError
from symalloc.planner.memory_plan import PlanOptions
from symalloc.relax.passes.plan_pass import DeviceMemory, device_memory, plan_lowered
from tests.relax.built import lowered


def test_every_device_of_the_module_counts() -> None:
    devices = [VDevice("llvm"), VDevice("webgpu")]
    module = tvm.IRModule({}, global_infos={"vdevice": devices})
    assert device_memory(module, Target("llvm")) == DeviceMemory(addresses=False, shared=False)


def test_textures_are_left_to_tvm() -> None:
    devices = [VDevice("opencl", 0, "global"), VDevice("opencl", 0, "global.texture-weight")]
    module = tvm.IRModule({}, global_infos={"vdevice": devices})
    with pytest.raises(RunError, match=r"tensors in global\.texture-weight cannot be planned"):
        device_memory(module, Target("opencl"))


def test_a_kernel_that_binds_whole_buffers_gets_storages() -> None:
    module = lowered("Chain")
    planned = plan_lowered(module, target=Target("webgpu"))
    arenas = planned.plans["main"].arenas
    assert all(p.offset.as_constant == 0 for arena in arenas for p in arena.placements)
    assert sum(len(arena.placements) for arena in arenas) > 1
    with pytest.raises(RunError, match="WebGPU binds whole buffers; choose the flavour storages"):
        plan_lowered(module, options=PlanOptions(flavour="arena"), target=Target("webgpu"))
