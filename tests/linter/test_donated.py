"""SYM113: results that are views of a parameter, and reads of it afterwards."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import from_source

import symalloc
from symalloc.linter.diagnostic import Diagnostic, Severity
from symalloc.program.ir import Var
from tests.linter.engine_run import findings
from tests.program.build import Body, param

RULE = "SYM113"


class Viewed(Body):
    """A function of x and z, and y, a view of x, which it returns unless `steps` name another result."""

    def __init__(self, steps: str) -> None:
        super().__init__(param("x", "n"), param("z", "n"))
        self.named = self.follow(f"y = view x n; {steps}")

    def findings(self) -> list[Diagnostic]:
        return list(findings(self.program(self.named.get("result", self.named["y"])), RULE))


def test_a_read_of_what_is_overwritten() -> None:
    (found,) = Viewed("fill y; again = alias x; read again").findings()
    assert found.severity is Severity.ERROR
    assert found.message == "`read` reads `x` after `fill` has written the result `y` over it"
    assert "`x` is reached through `again`" in found.notes


@pytest.mark.parametrize(
    ("steps", "severities"),
    [
        ("read x; fill y; read y", []),
        ("fill y; fill x; read x", []),  # written anew before it is read
        ("copy x y", []),  # that is SYM211
        ("update y; read x", ["warning"]),
        ("scatter y; read x", ["warning"]),
        ("update y; read x; fill y; update x", ["error"]),  # the surest of several
        ("fill y; w = view x n; read w", ["error"]),
        ("fill y; w = view x n; fill w; read w", []),
        ("fill y; w = view x n; scatter w; read w", ["warning"]),
        ("fill y; result = tuple y x", ["warning"]),  # what is returned counts
        ("fill y; read x; result = alias z", []),  # a part of x that is written, and no result
        ("w = packed unknown x; fill y; read w", ["warning"]),
    ],
)
def test_reads_and_writes(steps: str, severities: list[str]) -> None:
    assert [d.severity for d in Viewed(steps).findings()] == severities


def test_branches() -> None:
    body = Viewed("again = alias y")
    x, y = body.named["x"], body.named["y"]

    def after(kernel: str, target: Var) -> Var:
        body.call(kernel, target)
        return y

    body.named["result"] = body.branch(lambda: after("fill", y), lambda: after("read", x))
    assert body.findings() == []
    body.call("read", x)
    assert [d.severity for d in body.findings()] == ["error"]


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
    return from_source(text)


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
