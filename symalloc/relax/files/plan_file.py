"""Plans the module in a file, and reckons what there is to say about it: the job of `symalloc plan`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import transform

from symalloc.analysis.tensor_origin import TensorOrigin, tensor_origins
from symalloc.analysis.timeline import Timeline
from symalloc.errors import RunError
from symalloc.planner.memory_report.call_peak import operators_of
from symalloc.planner.memory_report.function_report import (
    FunctionReport,
    function_report,
    plan_symbols,
)
from symalloc.planner.memory_report.non_arena import non_arena_memory
from symalloc.planner.memory_report.plan_outcome import (
    PlanOutcome,
    TvmComparison,
    TvmPlan,
    own_arenas,
)
from symalloc.planner.memory_report.sample_bindings import SampleError, check_wanted, needed_at_entry
from symalloc.planner.plan_functions import certify
from symalloc.planner.planned_program import planned_program
from symalloc.planner.planner_options import PlanOptions
from symalloc.program.ir import Var
from symalloc.program.reading import PipelineName
from symalloc.prover.prover import Prover
from symalloc.relax.extract import extract, extract_numbered
from symalloc.relax.files.kernel_scratch import kernel_scratch
from symalloc.relax.files.load import (
    from_script,
    load_requested,
    lower_or_refuse,
    plan_or_refuse,
    target_report,
)
from symalloc.relax.files.requests import PlannedFile, PlanRequest
from symalloc.relax.ir_types import Node
from symalloc.relax.passes.pass_sequence import as_tvm_has_them
from symalloc.relax.passes.plan_pass import PlannedModule, sources_in
from symalloc.relax.read.open_model import load_module
from symalloc.relax.tvm_error import error_text, run_error

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


Form: TypeAlias = Literal["json", "script"]

STAGE = "PlanMemory"
_COMMENTED_IMPORT = re.compile(r"^# (?=(?:from|import) )", re.MULTILINE)


def plan_file(
    request: PlanRequest,
    *,
    options: PlanOptions,
    form: Form | None,
    samples: Sequence[Mapping[str, int]],
    comparison: Mapping[str, TvmComparison] | str | None,
) -> PlannedFile:
    """Loads a module, lowers and plans it; raises RunError.

    `form`: how the planned module is to be written down, None for not at all.  The plan is shown at the
    bindings `samples`, or at standard ones, beside `comparison`: TVM's plans by function, why there are
    none, or None where nobody asked.  Certificates are returned, not written.
    """
    loaded, lowered = _lowered(request)
    prover = Prover()
    planned = _planned(lowered, request.target, replace(options, certificate=None), prover)
    certified = options.certificate is not None
    name = request.module or request.path.stem
    return PlannedFile(
        text="" if form is None else written(planned.module, form),
        program=extract_numbered(
            planned.module, name=name, stage=STAGE, file=str(request.path), pickles=True
        ),
        original=extract(loaded, name=name),
        reports=memory_reports(
            planned, lowered, request.target, samples=samples, comparison=_compared(comparison, planned)
        ),
        certificate=certify(planned.plans, planned.analyses, prover) if certified else None,
    )


def compare_file(request: PlanRequest) -> dict[str, TvmComparison]:
    """TVM's own plans of a module, by function; raises RunError."""
    return compare_with_tvm(_lowered(request)[1])


def plan_module(
    module: tvm.IRModule,
    *,
    target: str = "llvm",
    pipeline: PipelineName = "default",
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
) -> PlannedModule:
    """`module` lowered and planned, no tensor left for another planner; raises RunError."""
    return _planned(lower_or_refuse(module, target, pipeline), target, options)


def memory_reports(
    planned: PlannedModule,
    lowered: tvm.IRModule,
    target: str,
    *,
    samples: Sequence[Mapping[str, int]] = (),
    comparison: Mapping[str, TvmComparison] = {},
) -> tuple[FunctionReport, ...]:
    """A report on each plan of `planned`, which was `lowered` for `target`.

    Raises RunError for a sample that does not fit.
    """
    program = planned.program
    scratch = kernel_scratch(lowered, program.kernels, target)
    around = {name: non_arena_memory(program, planned.analyses[name], scratch) for name in planned.plans}
    outcomes = plan_outcomes(planned)
    symbols = {name: plan_symbols(plan, around[name]) for name, plan in planned.plans.items()}
    needed = {name: needed_at_entry(of, program.functions[name]) for name, of in symbols.items()}
    try:
        check_wanted(samples, needed, later=frozenset().union(*symbols.values()))
        return tuple(
            function_report(
                plan,
                program.functions[name],
                around[name],
                outcome=outcomes[name],
                comparison=comparison.get(name),
                target=target_report(planned, name, target),
                origins=_origins(planned, name),
                wanted=samples,
            )
            for name, plan in planned.plans.items()
        )
    except SampleError as error:
        raise RunError(str(error)) from None


def plan_outcomes(planned: PlannedModule) -> dict[str, PlanOutcome]:
    """A call of each function with its plan, and without."""
    ours = planned_program(planned.program, planned.plans, fallback=planned.fallback)
    own = own_arenas(ours)
    return {
        name: PlanOutcome(
            planned=Timeline.of(ours.program, name, decided=ours.checked),
            unplanned=Timeline.of(planned.given, name),
            arenas=own,
            operators=operators_of(planned.unplanned[name]),
            fallback=planned.fallback and any(guard.defined_by is None for guard in plan.guards),
        )
        for name, plan in planned.plans.items()
    }


def _origins(planned: PlannedModule, name: str) -> Mapping[Var, TensorOrigin]:
    """The origins of tensors in a function as it was given, and as it was planned."""
    analysis = planned.analyses[name]
    found = tensor_origins(analysis, sources_in(analysis))
    before = planned.unplanned[name]
    return found if before is analysis else {**tensor_origins(before, sources_in(before)), **found}


def _compared(
    found: Mapping[str, TvmComparison] | str | None, planned: PlannedModule
) -> Mapping[str, TvmComparison]:
    if isinstance(found, str):
        return dict.fromkeys(planned.plans, TvmComparison(bounded=None, unbounded=TvmPlan(problem=found)))
    return found or {}


def _lowered(request: PlanRequest) -> tuple[tvm.IRModule, tvm.IRModule]:
    """The module as it is in the file, and behind CallTIRRewrite."""
    loaded = load_requested(request)
    return loaded, lower_or_refuse(loaded, request.target, request.pipeline)


def _planned(
    lowered: tvm.IRModule, target: str, options: PlanOptions, prover: Prover | None = None
) -> PlannedModule:
    """The rest gets a storage each at once: StaticPlanBlockMemory must find nothing to plan wrongly."""
    planned = plan_or_refuse(lowered, target, options, prover)
    with run_error("TVM cannot lower the planned module"):
        return replace(planned, module=transform.LowerAllocTensor()(planned.module))


# -- the planned module as a file ----------------------------------------------------------------------------


def written(module: tvm.IRModule, form: Form) -> str:
    """`module` as JSON or as TVMScript that reads back as the same module; raises RunError where it does
    not.
    """
    if form == "json":
        text = str(tvm.ir.save_json(module))
        again = load_module(text.encode())
    else:
        text = _script(module)
        again = _read_back(text)
    if not _same(again, module):
        raise RunError(
            f"TVM writes this module as {form} that reads back as another one; choose the other form"
        )
    return text


def _same(one: tvm.IRModule, other: tvm.IRModule) -> bool:
    """Equal, or at least printed alike: scripts leave out widths of integers that decide nothing."""
    return bool(tvm_ffi.structural_equal(one, other)) or _printed(one) == _printed(other)


def _printed(module: tvm.IRModule) -> str:
    return str(module.script(show_meta=True))


def _script(module: tvm.IRModule) -> str:
    """TVM's script with its imports made real, so that it is a Python file; constants travel as metadata."""
    plain = module.script()
    text = module.script(show_meta=True) if "metadata[" in plain else plain
    return _COMMENTED_IMPORT.sub("", text) + "\n"


def _read_back(text: str) -> Node:
    try:
        return from_script("the planned module", text.encode())
    except Exception as error:  # TVM prints what its own parser refuses in many ways
        raise RunError(f"the planned module cannot be written as TVMScript, write JSON: {error}") from None
