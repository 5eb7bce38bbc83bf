"""Planned modules whose fallbacks are entered at sizes that can be run: guards hold for small sizes only."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx

from tests.mutation.editable import Sequence, rewritten

__all__ = ["with_low_guards"]

_BEYOND = 1 << 40
"""Sizes that no machine holds: what guards are about."""
_LOW = 16


def with_low_guards(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with every If on sizes beyond all machines taking its second branch from small sizes on."""
    return rewritten(mod, _lower)


def _lower(sequence: Sequence) -> None:
    for step in sequence.steps:
        if step.branches:
            cond = _lowered(step.value.cond)
            step.value = relax.If(cond, step.value.true_branch, step.value.false_branch)


def _lowered(expression: Any) -> Any:
    if isinstance(expression, tirx.IntImm) and expression.value >= _BEYOND:
        return tirx.IntImm("int64", _LOW)
    if hasattr(expression, "a") and hasattr(expression, "b"):
        return type(expression)(_lowered(expression.a), _lowered(expression.b))
    return expression
