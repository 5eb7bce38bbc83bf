"""What TVM's StaticPlanBlockMemory makes of the same lowered module, with its declared bounds and without."""

from __future__ import annotations

from collections.abc import Iterator

import tvm
from tvm import relax
from tvm.relax import transform

from symalloc.plan.comparison import Comparison, TvmPlan
from symalloc.plan.outside import outside
from symalloc.program.allocations import allocations
from symalloc.program.model import AllocStorage, Block, If, Program
from symalloc.program.summaries import Analysis, analyse
from symalloc.program.types import TensorType
from symalloc.relax.extract import extract
from symalloc.relax.tvm_error import error_text
from symalloc.size.expr import Expr

__all__ = ["compare_with_tvm"]

BOUNDS = ("tir_var_upper_bound", "tir_var_lower_bound")


def compare_with_tvm(lowered: tvm.IRModule) -> dict[str, Comparison]:
    """TVM's plans by function, for a module as CallTIRRewrite leaves it."""
    declared = {v.name_hint for v, f in lowered.functions.items() if _declares_bounds(f)}
    unbounded = _plans(_without_bounds(lowered))
    bounded = _plans(lowered) if declared else unbounded
    return {
        name: Comparison(bounded=bounded[name] if name in declared else None, unbounded=plan)
        for name, plan in unbounded.items()
    }


def _declares_bounds(function: object) -> bool:
    return isinstance(function, relax.Function) and bool(function.attrs and BOUNDS[0] in function.attrs)


def _without_bounds(module: tvm.IRModule) -> tvm.IRModule:
    bare = module.clone()
    for variable, function in module.functions_items():
        if _declares_bounds(function):
            stripped = function
            for name in BOUNDS:
                stripped = stripped.without_attr(name)
            bare.update_func(variable, stripped)
    return bare


def _plans(lowered: tvm.IRModule) -> dict[str, TvmPlan]:
    names = [v.name_hint for v, f in lowered.functions.items() if isinstance(f, relax.Function)]
    try:
        program = extract(transform.StaticPlanBlockMemory()(lowered), name="planned by TVM")
    except Exception as error:  # a pass raises whatever it raises
        failed = TvmPlan(problem=f"StaticPlanBlockMemory fails: {error_text(error, most=1)}")
        return dict.fromkeys(names, failed)
    analyses = analyse(program)
    return {name: _plan(program, analyses[name]) for name in names}


def _plan(program: Program, analysis: Analysis) -> TvmPlan:
    body = analysis.flow.function.body
    returned = frozenset(v for r in outside(program, analysis, {}).returned for v in r.allocations)
    fresh = (a for a in allocations(body) if a.var not in returned)
    return TvmPlan(
        storages=tuple(_storages(body)),
        fresh=tuple(TensorType(shape=a.shape, dtype=a.dtype).nbytes for a in fresh),
    )


def _storages(block: Block) -> Iterator[Expr | None]:
    for instruction in block.instructions:
        if isinstance(instruction, AllocStorage):
            yield instruction.size
        elif isinstance(instruction, If):
            yield from _storages(instruction.then)
            yield from _storages(instruction.otherwise)
