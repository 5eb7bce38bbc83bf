"""Facts about the target of a planned module: how kernels take tensors, and what this machine has of it."""

from __future__ import annotations

import tvm
from tvm.target import Target
from tvm_ffi import DLDeviceType

from symalloc.planner.memory_report.target_report import TargetReport
from symalloc.program.ir import CallKernel
from symalloc.program.operands import instructions_of
from symalloc.relax.emit.accepts_offset import offset_parameters
from symalloc.relax.passes.plan_pass import PlannedModule


def target_report(planned: PlannedModule, function: str, target: str | Target) -> TargetReport | None:
    """The report on the target of one function's plan; None where it runs on the CPU."""
    chosen = Target(target)
    if runs_on_cpu(chosen):
        return None
    body = planned.program.functions[function].body
    kernels = {i.kernel for i in instructions_of(body) if isinstance(i, CallKernel)}
    placed = (p.buffer for arena in planned.plans[function].arenas for p in arena.placements)
    return TargetReport(
        name=str(chosen.kind.name),
        present=has_device(chosen),
        generated=generates_code(chosen),
        flavour=planned.flavour,
        shared=planned.memory.shared,
        kernels=len(kernels),
        offset_kernels=sum(bool(offset_parameters(planned.module[kernel])) for kernel in kernels),
        grounded=0 if planned.flavour == "storages" else sum(buffer.grounded for buffer in placed),
    )


def why_not_run(target: Target) -> str | None:
    """The reason why nothing can be run for `target` here; None for a CPU."""
    name = target.kind.name
    if not generates_code(target):
        return f"this build of TVM generates no code for {name}"
    if runs_on_cpu(target):
        return None
    if not has_device(target):
        return f"it needs a device, and this machine has none of {name}"
    return f"it needs a device of {name}, and `symalloc run` runs on the CPU only"


def runs_on_cpu(target: Target) -> bool:
    """Return whether code for `target` runs on the host."""
    return int(target.get_target_device_type()) == DLDeviceType.kDLCPU


def has_device(target: Target) -> bool:
    """Return whether TVM finds a device of `target` on this machine."""
    kind = int(target.get_target_device_type())
    return bool(tvm.runtime.Device(kind, 0).exist) if kind in set(DLDeviceType) else False


def generates_code(target: Target) -> bool:
    """Return whether this build of TVM has a code generator for `target`."""
    return tvm.get_global_func(f"target.build.{target.kind.name}", allow_missing=True) is not None
