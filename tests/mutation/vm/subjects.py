"""What the second oracle's mutants are made of: models of every kind, at several stages, planned or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import tvm
from tvm.relax import transform

from symalloc.planner.memory_plan import PlanOptions
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import PlanMemory
from symalloc.relax.passes.sizes_and_guards import LowerGuards
from tests.models.imported import IMPORTED, load_imported
from tests.models.planned import CASES
from tests.models.zoo import MODELS
from tests.mutation.low_guards import with_low_guards
from tests.mutation.views import with_views
from tests.mutation.vm.handmade import HANDMADE, constant_weights
from tests.mutation.vm.judging import Subject

__all__ = ["PLANS", "finish_planned", "names", "vm_subjects"]

Pass: TypeAlias = tvm.transform.Pass
Transformation: TypeAlias = Callable[[tvm.IRModule], tvm.IRModule]

# how far a module is lowered, and how its memory is planned -> the models that are
PLANS = {
    "tvm": (
        *("mlp_dynamic_batch", "mlp_residual", "norms", "cross_attention", "cumulative_mask"),
        *("branch_then_only", "branches_of_different_size", "subroutines", "subroutine_returns_argument"),
        *("several_functions", "tuple_in_and_out", "nested_tuples", "tuple_through_function"),
        *(
            "split_and_join",
            "zoo inplace",
            "two_outputs_of_a_kernel",
            "reshape_heads",
            "slice_rows",
            "padding",
        ),
        *("many_element_types", "gru", "densenet", "unique", "zoo nonzero", "shape_from_tensor"),
        *("onnx_mlp", "onnx_cnn", "append_to_cache", "scalar_parameter", "gather", "constant_weights"),
        *("onnx_attention", "onnx_branch", "onnx_gather", "onnx_inception", "onnx_nonzero", "onnx_slices"),
        *("onnx_topk", "onnx_two_lengths", "torch_autoencoder", "torch_decode_step", "torch_op_cond"),
        *("torch_mixture_of_experts", "torch_op_embedding", "torch_op_four_lengths", "torch_op_gather"),
        *("torch_op_masked_select", "torch_op_pad", "torch_op_scatter", "torch_op_where_mask"),
        "torch_op_sort",
    ),
    "arena": (
        *("mlp_residual", "cross_attention", "branches", "nested_branches", "computed_condition", "callee"),
        *("tuples", "inplace", "reshapes", "match_cast", "nonzero", "argsort", "element_types"),
        *("two_entries", "returned_on_one_path", "outer_returned", "rows_of_a_branch", "two_in_a_row"),
        *("gru", "onnx_mlp", "split_and_join", "lstm", "mlp", "constant_weights"),
        *("onnx_branch", "onnx_two_lengths", "onnx_residual_image", "torch_autoencoder", "torch_op_cond"),
        *("torch_op_einsum", "torch_op_roll_flip"),
    ),
    "handmade": tuple(HANDMADE),
    "storages": ("mlp_residual", "nested_branches", "reshapes", "callee"),
    "fallback": ("mlp_residual", "nested_branches", "inplace"),
    "native": ("mlp_residual", "element_types"),
    "unguarded": ("element_types", "reshape_heads"),
    "views": ("mlp_residual", "branches", "reshape_heads", "split_and_join"),
    "unplanned": (
        *("mlp_residual", "nested_branches", "inplace", "callee", "two_outputs_of_a_kernel", "torch_op_pad"),
    ),
    "source": ("inplace", "zoo inplace"),
    "late": ("mlp_residual", "zoo inplace", "subroutines", "torch_op_scatter", "constant_weights"),
    "late arena": ("mlp_residual", "branches", "callee", "inplace", "onnx_two_lengths"),
}
_OPTIONS = {
    "arena": PlanOptions(),
    "late arena": PlanOptions(),
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
    module, finish = _made(name, plan)
    zoo = name.removeprefix("zoo ")
    case = CASES.get(name)
    return Subject(
        name=f"{name}/{plan}",
        module=module,
        finish=finish,
        bindings=_some(case.bindings) if case else (),
        fixed=MODELS[zoo].sizes if zoo in MODELS and not case else {},
    )


def _made(name: str, plan: str) -> tuple[tvm.IRModule, Transformation]:
    """The module to be mutated, and what turns it into one that can be run."""
    if plan == "handmade":
        return HANDMADE[name](), finish_planned
    built = _built(name)
    if plan == "source":
        placed = transform.StaticPlanBlockMemory()
        return transform.ToNonDataflow()(built), lambda mod: finish_planned(
            _place(placed, lower(mod, "llvm"))
        )
    lowered = lower(built, "llvm")
    if plan == "unplanned":
        return lowered, lambda mod: finish_planned(_passes(_SETTLING)(mod))
    options = _OPTIONS.get(plan)
    planned = _place(PlanMemory(options) if options else transform.StaticPlanBlockMemory(), lowered)
    if plan == "views":
        planned = with_views(planned)
    if plan == "fallback":
        planned = with_low_guards(planned)
    if plan.startswith("late"):
        *rest, last = _rest(ours=options is not None)
        return _passes(rest)(planned), _passes([last])
    return planned, _passes(_rest(ours=options is not None))


def planned_by_tvm(name: str) -> tvm.IRModule:
    """A model with StaticPlanBlockMemory's storages and kills."""
    return _place(transform.StaticPlanBlockMemory(), lower(_built(name), "llvm"))


def _built(name: str) -> tvm.IRModule:
    if name in IMPORTED:
        return load_imported(name)
    if name == constant_weights.__name__:
        return constant_weights()
    zoo = name.removeprefix("zoo ")
    return CASES[name].build() if name in CASES else MODELS[zoo].build()


def _place(planner: Pass, lowered: tvm.IRModule) -> tvm.IRModule:
    return _passes([planner, *_SETTLING])(lowered)


def _some(bindings: Sequence[dict[str, int]]) -> tuple[dict[str, int], ...]:
    """Three of a case's bindings: a small one, an odd one, a larger one."""
    return tuple({**bindings[i]} for i in (0, 1, len(bindings) // 2 + 1))


def _passes(passes: Sequence[Pass]) -> Transformation:
    def run(mod: tvm.IRModule) -> tvm.IRModule:
        with tvm.target.Target("llvm"):
            return tvm.transform.Sequential(passes)(mod)

    return run


def finish_planned(mod: tvm.IRModule) -> tvm.IRModule:
    """What TVM's pipeline makes of a module behind KillAfterLastUse; guards in it are lowered."""
    return _passes(_rest(ours=True))(mod)


def _rest(*, ours: bool) -> list[Pass]:
    """The passes behind KillAfterLastUse."""
    return [
        transform.LowerRuntimeBuiltin(),
        *([LowerGuards()] if ours else []),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ]


_SETTLING = (transform.LowerAllocTensor(), transform.KillAfterLastUse())
