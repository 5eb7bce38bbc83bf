"""Modules that branch, behind RewriteCUDAGraph in TVM's own pipeline for CUDA."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.ir.transform import PassContext
from tvm.target import Target

import symalloc
from symalloc.relax.files.load import load_one
from symalloc.relax.passes.pipeline import KeepConditions, lower
from symalloc.relax.passes.plan_pass import plan_lowered
from tests.relax.built import SCRIPT

CUDA = Target({"kind": "cuda", "arch": "sm_80"})
GRAPHS = {"relax.backend.use_cuda_graph": True}


def weighed() -> tvm.IRModule:
    """A branch that is decided by a weight, which is the same at every call."""
    return load_one(SCRIPT, module="Weighed").clone()


def regions(module: tvm.IRModule) -> int:
    return sum("cuda_graph_capture" in v.name_hint for v in module.get_global_vars())


def test_a_condition_that_is_captured_is_known_outside() -> None:
    with CUDA, PassContext(config=GRAPHS):
        planned = plan_lowered(lower(weighed(), CUDA)).module
        lost = relax.transform.RewriteCUDAGraph()(planned)
        kept = relax.transform.RewriteCUDAGraph()(KeepConditions()(planned))
    with pytest.raises(Exception, match="is not defined"):
        relax.analysis.well_formed(lost)
    relax.analysis.well_formed(kept)
    assert regions(kept) == regions(lost) > 0


def test_as_much_is_captured_as_behind_the_planner_of_tvm_and_every_stage_is_clean() -> None:
    """Constant sizes lie apart from those that vary, so that what is the same at every call is captured."""
    module = load_one(SCRIPT, module="Prepared")
    with PassContext(config=GRAPHS, instruments=[symalloc.VerifyMemory()]):
        ours = symalloc.pipeline(CUDA)(module)
    with PassContext(config=GRAPHS):
        theirs = relax.get_default_pipeline(CUDA)(module)
    assert regions(ours) >= regions(theirs) > 0
    assert regions(symalloc.pipeline(CUDA)(module)) == 0


def test_where_nothing_branches_nothing_changes() -> None:
    module = lower(load_one(SCRIPT, module="Chain"), "llvm")
    assert KeepConditions()(module)["main"].same_as(module["main"])
