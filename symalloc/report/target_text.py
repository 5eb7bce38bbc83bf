"""The facts about a plan's target as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.planner.memory_report.function_report import FunctionReport
from symalloc.planner.memory_report.target_report import TargetReport
from symalloc.report.quantities import human_bytes


def target_lines(report: FunctionReport) -> Iterator[str]:
    """Yield the lines about the target of a function's plan; none for a CPU."""
    target = report.target
    if target is None:
        return
    yield f"  target {target.name}: {_flavour(target)}"
    if target.grounded:
        yield f"  {_grounded(target.grounded)}, as more than kernels looks there and data is a mere handle"
    yield _unproved(target)
    kept = report.kept_by_pool
    if kept is not None:
        yield (
            f"  TVM's allocator on {target.name} keeps a block for each size that an arena ever had:"
            f" {human_bytes(kept)} after a call at each of these sizes; --bounds reserve asks for one size"
        )


def _flavour(target: TargetReport) -> str:
    if target.flavour == "arena":
        return f"{target.offset_kernels} of {target.kernels} kernels take a tensor at an offset"
    if target.shared:
        return "tensors share whole storages"
    return "tensors share whole storages, as no kernel can read and write tensors of one buffer there"


def _grounded(count: int) -> str:
    return "1 tensor starts a storage" if count == 1 else f"{count} tensors start a storage each"


def _unproved(target: TargetReport) -> str:
    """Return what has not been tried."""
    if not target.generated:
        return f"  this build of TVM generates no code for {target.name}: planned and linted only"
    if target.present:
        return "  planned and linted; `symalloc run` runs on the CPU only"
    return "  planned and linted; not run: this machine has no such device"
