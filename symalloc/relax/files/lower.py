"""Lowering and planning for a person: whatever TVM raises becomes one readable error."""

from __future__ import annotations

import tvm

from symalloc.planner.check.plan_fault import PlanRefusedError
from symalloc.planner.planner_options import PlanOptions
from symalloc.prover.prover import Prover
from symalloc.relax.files.result import PipelineName, RunError
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import PlannedModule, plan_lowered
from symalloc.relax.tvm_error import error_text


def lower_or_refuse(module: tvm.IRModule, target: str, pipeline: PipelineName) -> tvm.IRModule:
    """`module` behind CallTIRRewrite; raises RunError."""
    try:
        return lower(module, target, flavour=pipeline)
    except Exception as error:  # a pass raises whatever it raises
        raise RunError(
            f"TVM cannot lower the module for the target {target!r}: {error_text(error)}"
        ) from None


def plan_or_refuse(lowered: tvm.IRModule, target: str, options: PlanOptions) -> PlannedModule:
    """`lowered` planned; raises RunError where a plan cannot be proved, or its proof not be written."""
    try:
        return plan_lowered(lowered, Prover(), options=options, target=tvm.target.Target(target))
    except PlanRefusedError as error:
        raise RunError(str(error)) from None
    except OSError as error:
        raise RunError(f"cannot write certificates: {error.strerror}") from None
