"""What is mutated: small modules as TVM plans them, and as this project does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tvm
from models.zoo import MODELS
from tvm import relax
from tvm.relax import transform

from symalloc.relax.plan_pass import PlanMemory

__all__ = ["OURS", "THEIRS", "Subject", "plan_ours", "plan_theirs", "subjects"]

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
    "tuple_in_and_out",
    "nested_tuples",
    "split_and_join",
    "inplace",
    "reshape_heads",
    "many_element_types",
    "gru",
)


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


def _plan(mod: tvm.IRModule, planner: tvm.transform.Pass) -> tvm.IRModule:
    with tvm.target.Target("llvm"):
        return tvm.transform.Sequential(_passes(planner))(mod)


def plan_theirs(name: str) -> tvm.IRModule:
    """A model of the zoo, planned by StaticPlanBlockMemory."""
    return _plan(MODELS[name].build(), transform.StaticPlanBlockMemory())


def plan_ours(name: str) -> tvm.IRModule:
    """A model of the zoo, planned by symalloc.PlanMemory."""
    return _plan(MODELS[name].build(), PlanMemory())


def subjects(theirs: tuple[str, ...] = THEIRS, ours: tuple[str, ...] = OURS) -> Iterator[Subject]:
    """All subjects, named after the model and the planner."""
    makers: list[tuple[str, tuple[str, ...], Callable[[str], tvm.IRModule]]] = [
        ("tvm", theirs, plan_theirs),
        ("symalloc", ours, plan_ours),
    ]
    for planner, names, make in makers:
        for name in names:
            yield f"{name}/{planner}", make(name)
