"""Targets and pipelines as callers give them."""

from __future__ import annotations

from typing import get_args

from tvm.ir.transform import Pass
from tvm.target import Target

from symalloc.arguments import require_choice, shown
from symalloc.errors import UsageError
from symalloc.program.reading import PipelineName
from symalloc.relax.tvm_error import error_text


def require_target(value: object) -> None:
    """Raise UsageError for what can be no target; which names it knows TVM says itself."""
    if not isinstance(value, str | Target):
        raise UsageError(f"target is {shown(value)}; it must be the name of a target of TVM, or a Target")


def target_of(value: object) -> Target:
    """The target that `value` is or names; raises UsageError."""
    require_target(value)
    try:
        return Target(value)
    except Exception as error:  # TVM raises several kinds
        raise UsageError(f"target is {shown(value)}: {error_text(error)}") from None


def require_pipeline(value: object) -> None:
    """Raise UsageError for what is no pass, and not the name of a pipeline of symalloc."""
    if not isinstance(value, Pass):
        require_choice("pipeline", value, get_args(PipelineName))
