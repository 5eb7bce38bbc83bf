"""What the second oracle's mutants are made of: models of every kind, at several stages, planned or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import tvm
from tvm.relax import transform

from symalloc.planner.planner_options import PlanOptions
from symalloc.relax.passes.lower_guards import LowerGuards
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import PlanMemory
from tests.models.planned import CASES
from tests.models.zoo import MODELS
from tests.mutation.views import with_views
from tests.mutation.vm.judging import Subject

__all__ = ["PLANS", "finish_planned", "names", "vm_subjects"]

Pass = tvm.transform.Pass

# how memory is planned -> the models that are
PLANS = {
    "tvm": (
        *("mlp_dynamic_batch", "mlp_residual", "norms", "cross_attention", "cumulative_mask"),
        *("branch_then_only", "branches_of_different_size", "subroutines", "subroutine_returns_argument"),
        *("recursion", "several_functions", "tuple_in_and_out", "nested_tuples", "tuple_through_function"),
        *(
            "split_and_join",
            "zoo inplace",
            "two_outputs_of_a_kernel",
            "reshape_heads",
            "slice_rows",
            "padding",
        ),
        *("many_element_types", "gru", "densenet", "unique", "zoo nonzero", "shape_from_tensor"),
        *("onnx_mlp", "onnx_cnn", "append_to_cache", "scalar_parameter", "shape_parameter", "gather"),
    ),
    "arena": (
        *("mlp_residual", "cross_attention", "branches", "nested_branches", "computed_condition", "callee"),
        *("tuples", "inplace", "reshapes", "match_cast", "nonzero", "argsort", "element_types"),
        *("two_entries", "returned_on_one_path", "outer_returned", "rows_of_a_branch", "two_in_a_row"),
        *("recursion", "gru", "onnx_mlp", "split_and_join", "lstm", "mlp"),
    ),
    "storages": ("mlp_residual", "nested_branches", "reshapes", "callee"),
    "fallback": ("mlp_residual", "nested_branches", "inplace"),
    "native": ("mlp_residual", "element_types"),
    "unguarded": ("element_types", "reshape_heads"),
    "views": ("mlp_residual", "branches", "reshape_heads", "split_and_join"),
    "unplanned": (
        "mlp_residual",
        "nested_branches",
        "inplace",
        "callee",
        "recursion",
        "two_outputs_of_a_kernel",
    ),
}
_OPTIONS = {
    "arena": PlanOptions(),
    "views": PlanOptions(),
    "storages": PlanOptions(flavour="storages"),
    "fallback": PlanOptions(guards="fallback"),
    "native": PlanOptions(guards="native"),
    "unguarded": PlanOptions(guards="none"),
}


def names(plans: dict[str, tuple[str, ...]] = PLANS) -> list[str]:
    """The names of the subjects, in order."""
    return [f"{name}/{plan}" for plan, models in plans.items() for name in models]


def vm_subjects(plans: dict[str, tuple[str, ...]] = PLANS) -> Iterator[Callable[[], Subject]]:
    """The subjects, each to be made when its turn has come."""
    for plan, names in plans.items():
        for name in names:
            yield lambda name=name, plan=plan: _subject(name, plan)  # type: ignore[misc]


def _subject(name: str, plan: str) -> Subject:
    zoo = name.removeprefix("zoo ")
    in_zoo = zoo != name or name not in CASES
    model = MODELS[zoo] if in_zoo else CASES[name]
    lowered = lower(model.build(), "llvm")
    if plan == "unplanned":
        module, finish = lowered, _passes(_rest("all", ours=True))
    else:
        planner = PlanMemory(_OPTIONS[plan]) if plan in _OPTIONS else transform.StaticPlanBlockMemory()
        module = _passes([planner, transform.LowerAllocTensor(), transform.KillAfterLastUse()])(lowered)
        finish = _passes(_rest("behind kills", ours=plan in _OPTIONS))
    if plan == "views":
        module = with_views(module)
    return Subject(
        name=f"{name}/{plan}",
        module=module,
        finish=finish,
        bindings=() if in_zoo else _some(CASES[name].bindings),
        fixed=MODELS[zoo].sizes if in_zoo else {},
    )


def _some(bindings: Sequence[dict[str, int]]) -> tuple[dict[str, int], ...]:
    """Three of a case's bindings: a small one, an odd one, a larger one."""
    return tuple({**bindings[i]} for i in (0, 1, len(bindings) // 2 + 1))


def _passes(passes: Sequence[Pass]) -> Callable[[tvm.IRModule], tvm.IRModule]:
    def run(mod: tvm.IRModule) -> tvm.IRModule:
        with tvm.target.Target("llvm"):
            return tvm.transform.Sequential(passes)(mod)

    return run


def finish_planned(mod: tvm.IRModule) -> tvm.IRModule:
    """What TVM's pipeline makes of a module behind KillAfterLastUse."""
    return _passes(_rest("behind kills", ours=False))(mod)


def _rest(behind: str, *, ours: bool) -> list[Pass]:
    first = [transform.LowerAllocTensor(), transform.KillAfterLastUse()] if behind == "all" else []
    return [
        *first,
        transform.LowerRuntimeBuiltin(),
        *([LowerGuards()] if ours else []),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ]
