"""What is mutated: small modules as TVM plans them, and as this project does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tvm
from tvm import relax
from tvm.relax import transform

from symalloc.planner.planner_options import PlanOptions
from symalloc.relax.passes.plan_pass import PlanMemory
from tests.models.planned import CASES
from tests.models.zoo import MODELS
from tests.mutation.views import with_views

__all__ = ["OTHERS", "OURS", "THEIRS", "VIEWS", "Subject", "plan_ours", "plan_theirs", "subjects"]

Subject = tuple[str, tvm.IRModule]

# small, without externals whose effect on memory is unknown, and right as TVM plans them
THEIRS = (
    "mlp_dynamic_batch",
    "mlp_residual",
    "norms",
    "cross_attention",
    "cumulative_mask",
    "branch_then_only",
    "branches_of_different_size",
    "subroutines",
    "tuple_in_and_out",
    "nested_tuples",
    "tuple_through_function",
    "split_and_join",
    "inplace",
    "two_outputs_of_a_kernel",
    "reshape_heads",
    "slice_rows",
    "padding",
    "many_element_types",
    "gru",
    "densenet",
)
OURS = (
    "mlp_dynamic_batch",
    "mlp_residual",
    "cross_attention",
    "branches",
    "nested_branches",
    "computed_condition",
    "callee",
    "tuple_in_and_out",
    "nested_tuples",
    "split_and_join",
    "inplace",
    "reshape_heads",
    "many_element_types",
    "gru",
)
# planned in other ways
OTHERS = (
    ("storages", PlanOptions(flavour="storages"), ("mlp_residual", "nested_branches", "reshapes")),
    ("fallback", PlanOptions(guards="fallback"), ("mlp_residual", "nested_branches", "inplace")),
    ("native", PlanOptions(guards="native"), ("mlp_residual", "nested_branches", "element_types")),
    ("unguarded", PlanOptions(guards="none"), ("element_types", "reshape_heads")),
)

# planned by this project, then written with views in place of tensors at offsets
VIEWS = ("mlp_residual", "branches", "reshape_heads", "split_and_join")


def _passes(planner: tvm.transform.Pass) -> list[tvm.transform.Pass]:
    return [
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        transform.LegalizeOps(),
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        planner,
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
    ]


def _plan(name: str, planner: tvm.transform.Pass) -> tvm.IRModule:
    build: Callable[[], tvm.IRModule] = (MODELS[name] if name in MODELS else CASES[name]).build
    with tvm.target.Target("llvm"):
        return tvm.transform.Sequential(_passes(planner))(build())


def plan_theirs(name: str) -> tvm.IRModule:
    """A model, planned by StaticPlanBlockMemory."""
    return _plan(name, transform.StaticPlanBlockMemory())


def plan_ours(name: str, options: PlanOptions | None = None) -> tvm.IRModule:
    """A model, planned by symalloc.PlanMemory."""
    return _plan(name, PlanMemory(options or PlanOptions()))


def subjects(
    theirs: tuple[str, ...] = THEIRS,
    ours: tuple[str, ...] = OURS,
    others: tuple[tuple[str, PlanOptions, tuple[str, ...]], ...] = OTHERS,
    views: tuple[str, ...] = VIEWS,
) -> Iterator[Subject]:
    """All subjects, named after the model and the planner."""
    for name in theirs:
        yield f"{name}/tvm", plan_theirs(name)
    for name in ours:
        yield f"{name}/symalloc", plan_ours(name)
    for kind, options, names in others:
        for name in names:
            yield f"{name}/{kind}", plan_ours(name, options)
    for name in views:
        yield f"{name}/views", with_views(plan_ours(name))
