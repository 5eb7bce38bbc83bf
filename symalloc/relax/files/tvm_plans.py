"""TVM's own plans of a lowered module, with its declared bounds and without."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax
from tvm.relax import transform

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.planner.memory_report.function_report import TvmComparison, TvmPlan
from symalloc.planner.memory_report.non_arena import non_arena_memory, values_at_call
from symalloc.program.ir import AllocFresh, AllocStorage, CallFunction, Program
from symalloc.program.operands import instructions_of
from symalloc.program.types import TensorType
from symalloc.relax.extract import extract
from symalloc.relax.tvm_error import error_text
from symalloc.size.choice import maximum
from symalloc.size.expr import ZERO, Expr

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
        program = extract(transform.StaticPlanBlockMemory()(lowered), name="planned by TVM")
    except Exception as error:  # a pass raises whatever it raises
        failed = TvmPlan(problem=f"StaticPlanBlockMemory fails: {error_text(error, most=1)}")
        return dict.fromkeys(names, failed)
    analyses = analyse(program)
    return {name: _plan(program, analyses, name, ()) for name in names}


def _plan(
    program: Program, analyses: Mapping[str, FunctionAnalysis], name: str, callers: tuple[str, ...]
) -> TvmPlan:
    """The plan of the function `name`; recursion is not followed."""
    analysis = analyses[name]
    body = analysis.cfg.function.body
    around = non_arena_memory(program, analysis, {})
    returned = frozenset(v for r in around.returned for v in r.allocations)
    made_here = (i for i in instructions_of(body) if isinstance(i, AllocFresh))
    left = (a for a in made_here if a.var not in returned)
    made = (m.nbytes for m in around.made if m.by in program.functions)
    return TvmPlan(
        storages=tuple(i.size for i in instructions_of(body) if isinstance(i, AllocStorage)),
        fresh=(*(TensorType(shape=a.shape, dtype=a.dtype).nbytes for a in left), *made),
        calls=tuple(
            _reserved_by(call, program, analyses, (*callers, name))
            for _, call in analysis.cfg.instructions
            if isinstance(call, CallFunction)
            if call.name in program.functions and call.name not in (*callers, name)
        ),
    )


def _reserved_by(
    call: CallFunction, program: Program, analyses: Mapping[str, FunctionAnalysis], callers: tuple[str, ...]
) -> tuple[Expr | None, ...]:
    """The sizes that `call` reserves, in the symbols of the caller; its own calls count as their largest."""
    plan = _plan(program, analyses, call.name, callers)
    values = values_at_call(program.functions[call.name], call)
    sums = [None if None in sizes else sum(filter(None, sizes), start=ZERO) for sizes in plan.calls]
    deeper = (None if None in sums else maximum(*filter(None, sums)),) if sums else ()
    sizes = (*plan.storages, *plan.fresh, *deeper)
    return tuple(None if size is None else size.substitute(values) for size in sizes)
