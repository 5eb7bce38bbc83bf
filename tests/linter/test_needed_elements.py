"""SYM309: where an operator is said to take more elements than there are, a run shows what was there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import tvm
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

import symalloc
from tests.hostile.machine import Machine, depends_on_storages
from tests.pool.processes import died

REDUCTIONS = ("argmax", "argmin", "max", "mean", "median", "min", "prod", "sum")
CALLS: Mapping[str, tuple[str, int]] = {
    **{name: (f"R.{name}(x, axis={'0' if name.startswith('arg') else '[0]'})", 1) for name in REDUCTIONS},
    "topk": ('R.topk(x, k=2, axis=0, ret_type="values")', 2),
    "topk-indices": ('R.topk(x, k=2, axis=-2, ret_type="indices")', 2),
    "sort": ("R.sort(x, axis=0)", 0),
    "cumsum": ("R.cumsum(x, axis=0)", 0),
    "all-but-none": ("R.max(x, axis=[1])", 0),
}
"""Calls on n rows of 4, and the least n at which each is right."""


def _module(call: str) -> tvm.IRModule:
    text = f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        y = {call}
        return y
"""
    return tvm.script.from_source(text, {"I": I, "R": R, "T": T})


def _is_made_up(machine: Machine, rows: int) -> bool:
    """True if the result depends on what was there, or is a number where there is none."""
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    if depends_on_storages(machine, x):
        return True
    found, *_ = machine.run(x)
    return rows == 0 and bool(found.size) and not np.isnan(found.astype(np.float64)).all()


@pytest.mark.slow
def test_what_is_said_is_what_happens() -> None:
    machines = {name: Machine(_module(call)) for name, (call, _) in CALLS.items()}
    for name, (_, least) in CALLS.items():
        found = [d for d in symalloc.lint(machines[name].module, stage="as-is") if d.rule == "SYM309"]
        severities = [str(d.severity) for d in found]
        assert severities == (["warning"] if least > 1 else ["note"] * least), name
        assert all(d.precondition in (f"n >= {least}", f"{least} <= n") for d in found), found
        machines[name].prepare()

    def show() -> None:
        wrong = {
            name: [rows for rows in (0, 1, 3) if _is_made_up(one, rows)] for name, one in machines.items()
        }
        assert wrong == {name: [r for r in (0, 1, 3) if r < least] for name, (_, least) in CALLS.items()}

    status, said = died(show)
    assert status == 0, said[-3000:]
