"""Memo keys hold all that sites may look at: instructions with equal keys are checked once."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from symalloc.linter.function_check import MemoKeys
from symalloc.linter.sites.site import FunctionContext
from symalloc.program.ir import AllocFresh, AllocStorage, Instruction, Var
from symalloc.program.types import DType, OpaqueType
from symalloc.size.expr import constant

NO_CONTEXT: FunctionContext = None  # type: ignore[assignment]
NAMES = {field.name for field in fields(Instruction)} | {"inexact"}  # words for the planner's report
OTHERS: dict[str, Any] = {
    "size": constant(32),
    "shape": (constant(5),),
    "device": 1,
    "scope": "shared",
    "dtype": DType("float16", 16),
    "dialect": "vm",
}


@pytest.mark.parametrize(
    "instruction",
    [
        AllocStorage(var=Var("s", OpaqueType()), size=constant(16)),
        AllocFresh(var=Var("t", OpaqueType()), shape=(constant(4),), dtype=DType("float32", 32)),
    ],
)
def test_a_key_holds_every_field_but_names(instruction: Instruction) -> None:
    key = MemoKeys(NO_CONTEXT).of(instruction)
    assert key == MemoKeys(NO_CONTEXT).of(replace(instruction, var=Var("other", OpaqueType())))
    for field in fields(instruction):
        if field.name not in NAMES:
            changed = replace(instruction, **{field.name: OTHERS[field.name]})
            assert MemoKeys(NO_CONTEXT).of(changed) != key, field.name
