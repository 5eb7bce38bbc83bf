"""What TVM's DataflowUseInplaceCalls makes of views: SYM210 is reported where the numbers are wrong."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812

import symalloc

VIEWS = (
    *("R.astype(y, 'float32')", "R.broadcast_to(y, R.shape([3]))", "R.concat((y,), axis=0)"),
    *("R.flatten(y)", "R.strided_slice(y, axes=[0], begin=[0], end=[3])", "R.tile(y, [1])"),
    *("R.flip(y, axis=0)", "R.strided_slice(y, axes=[0], begin=[2], end=[-4], strides=[-1])"),
)
"""Operators on three elements; the last two move them."""
AGAIN = ("y", "R.permute_dims(y, [0])", "R.multiply(x, x)")


def _module(view: str, again: str) -> tvm.IRModule:
    text = f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        with R.dataflow():
            y = R.add(x, x)
            v = {view}
            more = R.add(v, R.const(1.0, "float32"))
            gv = R.subtract(more, {again})
            R.output(gv)
        return gv
"""
    return tvm.script.from_source(text, {"I": I, "R": R})


def _run(module: tvm.IRModule) -> np.ndarray:
    machine = relax.VirtualMachine(relax.build(module, target="llvm"), tvm.cpu())
    found: np.ndarray = machine["main"](tvm.runtime.tensor(np.arange(1, 4, dtype=np.float32))).numpy()
    return found


def _is_reported(module: tvm.IRModule) -> bool:
    found = symalloc.lint(module, stage="as-is")
    assert {d.rule for d in found} <= {"SYM210"}
    return bool(list(found))


@pytest.mark.slow
def test_views_in_place_are_reported_where_the_numbers_are_wrong() -> None:
    seen = set()
    for view, again in zip(VIEWS, cycle(AGAIN), strict=False):
        module = _module(view, again)
        changed = relax.transform.DataflowUseInplaceCalls()(module)
        wrong = not np.array_equal(_run(changed), _run(module))
        assert not _is_reported(module)
        assert _is_reported(changed) is wrong, (view, again)
        seen.add(wrong)
    assert seen == {True, False}
