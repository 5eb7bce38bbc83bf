"""Modules with their kernels shrunk, run beside the same as they are; and faults planted in kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import filterfalse
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx
from tvm.target import Target

from symalloc.planner.memory_plan import ShrinkChoice
from symalloc.relax.ir_types import Node, elements, with_parameters, with_variables
from symalloc.relax.passes.pipeline import finishing_pipeline
from symalloc.relax.run.machine import call, machines
from symalloc.relax.shrink.kernel_stages import Stage, stages_of
from symalloc.relax.shrink.shrink_kernels import is_kept, shrink_kernels
from tests.models.execution import random_inputs
from tests.relax.shrink.misplaced import faults

__all__ = ["different", "extents", "faulty", "outputs", "ran", "shrunk", "targets"]

PLAIN = {"kind": "llvm"}
CONTRACTS = {"kind": "llvm", "mcpu": "haswell"}  # has an instruction for a product in a sum


@cache
def targets() -> Sequence[Target]:
    """The targets that this machine runs."""
    contracts = " fma " in Path("/proc/cpuinfo").read_text()
    return [Target(one) for one in ((PLAIN, CONTRACTS) if contracts else (PLAIN,))]


def shrunk(lowered: tvm.IRModule, level: ShrinkChoice) -> tuple[tvm.IRModule, Mapping[str, tirx.PrimFunc]]:
    """A module with its kernels rewritten, and those that are others now, as they were."""
    after = shrink_kernels(lowered, level).module
    changed = {v.name_hint: f for v, f in lowered.functions_items() if not f.same_as(after[v])}
    return after, changed


def different(
    lowered: tvm.IRModule,
    after: Mapping[str, tvm.IRModule],
    binding: Mapping[str, int],
    target: Target,
    names: Sequence[str],
) -> list[str]:
    """The functions that give other bits in one of the modules `after`, and which."""
    machines = {}
    for label, module in {"": lowered, **after}.items():
        built = relax.build(module, target, relax_pipeline=finishing_pipeline(target))
        machines[label] = relax.VirtualMachine(built, tvm.cpu())
    found = []
    for name in names:
        arguments = random_inputs(lowered[name], binding, 0)
        bits = {label: made[name](*arguments).numpy().tobytes() for label, made in machines.items()}
        found += [f"{name} {label}" for label in after if bits[label] != bits[""]]
    return found


@lru_cache(maxsize=4)
def _machine(module: tvm.IRModule) -> relax.VirtualMachine:
    return machines(module, "naive", target="llvm", pipeline="default")[0]


def outputs(module: tvm.IRModule, name: str, arguments: Sequence[np.ndarray]) -> list[bytes]:
    """The bits that a function gives; modules that are asked in turn are built once."""
    return [one.tobytes() for one in call(_machine(module), name, arguments).outputs]


@lru_cache(maxsize=2)
def _compiled(kernel: tirx.PrimFunc) -> Callable[..., None]:
    module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
    return tvm.compile(module, "llvm")["main"]  # type: ignore[no-any-return]


def ran(kernel: tirx.PrimFunc, arguments: Sequence[np.ndarray | int]) -> list[np.ndarray]:
    """What is in the arrays behind a call of a kernel."""
    given = [tvm.runtime.tensor(one) if isinstance(one, np.ndarray) else one for one in arguments]
    _compiled(kernel)(*given)
    return [one.numpy() for one in given if not isinstance(one, int)]


def extents(param: ir.Var, symbols: Mapping[str, int]) -> list[int]:
    """The extents of a parameter of a kernel, where symbols have these values."""
    rule = (ir.Var, lambda var: tirx.IntImm("int64", symbols[var.name]))
    found = (tvm_ffi.structural_map(extent, rule) for extent in elements(param.ty.shape))
    return [int(tvm.sym.Analyzer().simplify(one)) for one in found]


# -- faults --------------------------------------------------------------------------------------------------


def faulty(rewritten: tirx.PrimFunc) -> Iterator[tuple[str, tirx.PrimFunc]]:
    """Kernels with one fault each, and what it is."""
    yield from faults(rewritten, (ir.TensorLoad, tirx.BufferStore))
    stages = stages_of(rewritten) or ()
    for number in range(len(stages) if len(stages) > 1 else 0):
        yield "a stage left out", _of(rewritten, [*stages[:number], *stages[number + 1 :]])
    for number in range(len(stages) - 1):
        swapped = [*stages[:number], stages[number + 1], stages[number], *stages[number + 2 :]]
        yield "a stage that reads later", _of(rewritten, swapped)
    for own in filterfalse(is_kept, elements(rewritten.body.block.alloc_buffers)):
        if stages and tvm_ffi.structural_equal(own.ty, stages[-1].target.ty):
            yield "a buffer in use in the output", _renamed(rewritten, own, stages[-1].target)


def _of(kernel: tirx.PrimFunc, stages: Sequence[Stage]) -> tirx.PrimFunc:
    """`kernel` with other stages."""
    parts = [stage.loops[0] if stage.loops else stage.realized for stage in stages]
    body = tirx.SeqStmt(parts) if len(parts) > 1 else parts[0]
    return _with_root(kernel, body, kernel.body.block.alloc_buffers)


def _renamed(kernel: tirx.PrimFunc, old: ir.Var, new: ir.Var) -> tirx.PrimFunc:
    left = [one for one in elements(kernel.body.block.alloc_buffers) if not one.same_as(old)]
    return _with_root(kernel, with_variables(kernel.body, [(old, new)]).block.body, left)


def _with_root(kernel: tirx.PrimFunc, body: Node, buffers: Sequence[ir.Var]) -> tirx.PrimFunc:
    block = s_tir.SBlock([], [], [], "root", body, alloc_buffers=buffers)
    realized = s_tir.SBlockRealize([], kernel.body.predicate, block)
    return with_parameters(kernel, elements(kernel.params), realized)
