"""ShrinkKernels: kernels that take less memory of their own, and give the same bits.

Stands in front of the planner, and of what schedules kernels.  Stages are written into those behind them
(`inline_stages`), and what is left of buffers lies in outputs (`shared_buffers`).  Kernels that are
scheduled, that call what is not seen, or store where data says are left as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import tvm
from tvm import s_tir, tirx
from tvm.ir import GlobalVar

from symalloc.planner.memory_report.non_arena import ShrunkKernel
from symalloc.planner.planner_options import SHRINK, ShrinkChoice
from symalloc.relax.ir_types import elements
from symalloc.relax.rewrite import with_functions
from symalloc.relax.shrink.inline_stages import inline_stages
from symalloc.relax.shrink.kernel_stages import stages_of
from symalloc.relax.shrink.same_results import same_results
from symalloc.relax.shrink.shared_buffers import share_buffers

NOT_PROVED = "it is not proved that the kernel would give the same without it"
NOT_PLAIN = "it is no sequence of plain loops: scheduled, opaque, or stored to where data says"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrunkModule:
    """A module with its kernels rewritten, as it was `given`, and what became of those that took memory of
    their own, by name.
    """

    module: tvm.IRModule
    given: tvm.IRModule
    kernels: Mapping[str, ShrunkKernel] = field(default_factory=dict)


def shrink_kernels(module: tvm.IRModule, wanted: ShrinkChoice) -> ShrunkModule:
    """`module` with its kernels rewritten, as far as is `wanted`."""
    changed: dict[GlobalVar, tirx.PrimFunc] = {}
    found: dict[str, ShrunkKernel] = {}
    if wanted == "none":
        return ShrunkModule(module=module, given=module)
    for variable, kernel in module.functions_items():
        own = _own_buffers(kernel)
        if not own:
            continue
        name = variable.name_hint
        if stages_of(kernel) is None:
            found[name] = ShrunkKernel(name=name, gone=0, left=dict.fromkeys(own, NOT_PLAIN))
            continue
        less, left = share_buffers(inline_stages(kernel, into_sums=wanted == "full"))
        if not same_results(kernel, less):
            left = dict.fromkeys(own, NOT_PROVED)
        if len(left) < len(own):
            changed[variable] = less
        found[name] = ShrunkKernel(name=name, gone=len(own) - len(left), left=left)
    return ShrunkModule(module=with_functions(module, changed), given=module, kernels=found)


def _own_buffers(kernel: object) -> tuple[str, ...]:
    """The names of the buffers that a kernel allocates around all that it does."""
    if not isinstance(kernel, tirx.PrimFunc) or type(kernel.body) is not s_tir.SBlockRealize:
        return ()
    return tuple(one.name for one in elements(kernel.body.block.alloc_buffers))


@tvm.transform.module_pass(opt_level=0, name="ShrinkKernels")
class ShrinkKernels:
    """Rewrites kernels so that they take less memory of their own, and give the same bits.

    Stands behind FuseTIR, in front of what schedules kernels or plans memory.  `level`: "safe" or "full", as
    the option `shrink` has them.  Raises UsageError for another one.
    """

    def __init__(self, level: ShrinkChoice = "safe") -> None:
        self.level: ShrinkChoice = SHRINK.read("level", level)

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its kernels rewritten."""
        return shrink_kernels(module, self.level).module
