"""TVM's own plans of a lowered module, with its declared bounds and without."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax import transform

from symalloc.analysis.timeline import Timeline
from symalloc.planner.memory_report.plan_outcome import TvmComparison, TvmPlan
from symalloc.relax.extract import extract
from symalloc.relax.passes.pass_sequence import as_tvm_has_them
from symalloc.relax.tvm_error import error_text

BOUNDS = ("tir_var_upper_bound", "tir_var_lower_bound")


def compare_with_tvm(lowered: tvm.IRModule) -> dict[str, TvmComparison]:
    """TVM's plans by function, for a module as CallTIRRewrite leaves it."""
    declared = {v.name_hint for v, f in lowered.functions.items() if _declares_bounds(f)}
    unbounded = _plans(_without_bounds(lowered))
    bounded = _plans(lowered) if declared else unbounded
    return {
        name: TvmComparison(bounded=bounded[name] if name in declared else None, unbounded=plan)
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
        with as_tvm_has_them():
            planned = transform.StaticPlanBlockMemory()(lowered)
        program = extract(planned, name="planned by TVM")
    except Exception as error:  # a pass raises whatever it raises
        failed = TvmPlan(problem=f"StaticPlanBlockMemory fails: {error_text(error, most=1)}")
        return dict.fromkeys(names, failed)
    return {name: TvmPlan(memory=Timeline.of(program, name, kills="stock")) for name in names}
