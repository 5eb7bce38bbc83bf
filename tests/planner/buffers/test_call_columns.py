"""The columns of many tensors, found at once and one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.zoo_models import chain
from symalloc.planner.buffers import call_columns
from symalloc.planner.buffers.call_columns import CallColumns
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered

TENSORS = 200


def test_columns_of_many_are_those_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    module = lower(chain(TENSORS), "llvm")
    made: list[CallColumns] = []
    making = CallColumns.__init__

    def noted(self: CallColumns, *arguments: Any) -> None:
        making(self, *arguments)
        made.append(self)

    monkeypatch.setattr(CallColumns, "__init__", noted)
    monkeypatch.setattr(call_columns, "MANY", 1)
    together = plan_lowered(module).module
    monkeypatch.setattr(call_columns, "MANY", 1 << 30)
    one_by_one = plan_lowered(module).module
    first, second = made
    assert len(first.held) >= TENSORS
    assert "held_columns" in vars(first)  # it was found at once
    assert first.made == second.made
    assert first.held == second.held
    for name in ("firsts", "begins", "ends"):
        assert np.array_equal(getattr(first.held_columns, name), getattr(second.held_columns, name))
    assert together.script() == one_by_one.script()
