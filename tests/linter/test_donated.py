"""SYM113: results that are views of a parameter, and reads of it afterwards."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812

import symalloc
from symalloc.linter.diagnostic import Severity
from symalloc.program.ir import Operand, Ownership, TupleValue, Var
from tests.linter.engine_run import findings
from tests.program.build import Body, param

RULE = "SYM113"


def told(body: Body, result: Operand) -> list[str]:
    return [d.severity for d in findings(body.program(result), RULE)]


def viewed(*steps: str) -> tuple[Body, Var, Var]:
    """A function of x and z, and y, a view of x; `steps` are calls of kernels, such as `copy x y`."""
    body = Body(param("x", "n"), param("z", "n"))
    x, z = body.params
    y = body.view(x, "n")
    for step in steps:
        body.follow(step, x=x, y=y, z=z)
    return body, x, y


def test_a_read_of_what_is_overwritten() -> None:
    body, x, y = viewed("fill y")
    body.call("read", body.alias(x, "again"))
    (found,) = findings(body.program(y), RULE)
    assert found.severity is Severity.ERROR
    assert found.message == "`read` reads `x` after `fill` has written the result `v1` over it"
    assert "`x` is reached through `again`" in found.notes


@pytest.mark.parametrize(
    ("steps", "severities"),
    [
        (["read x", "fill y", "read y"], []),
        (["fill y", "fill x", "read x"], []),  # written anew before it is read
        (["copy x y"], []),  # that is SYM211
        (["update y", "read x"], ["warning"]),
        (["scatter y", "read x"], ["warning"]),
        (["update y", "read x", "fill y", "update x"], ["error"]),  # the surest of several
    ],
)
def test_reads_and_writes(steps: list[str], severities: list[str]) -> None:
    body, _, y = viewed(*steps)
    assert told(body, y) == severities


@pytest.mark.parametrize(
    ("steps", "severities"),
    [(["read w"], ["error"]), (["fill w", "read w"], []), (["scatter w", "read w"], ["warning"])],
)
def test_another_view_that_is_written_anew(steps: list[str], severities: list[str]) -> None:
    body, x, y = viewed("fill y")
    other = body.view(x, "n")
    for step in steps:
        body.follow(step, w=other)
    assert told(body, y) == severities


def test_what_is_returned_counts() -> None:
    body, x, y = viewed("fill y")
    assert told(body, TupleValue((y, x))) == ["warning"]
    body, x, y = viewed("fill y", "read x")
    assert told(body, body.params[1]) == []  # a part of x that is written, and no result


def test_branches() -> None:
    body, x, y = viewed()

    def writes() -> Operand:
        body.call("fill", y)
        return y

    def reads() -> Operand:
        body.call("read", x)
        return y

    result = body.branch(writes, reads)
    assert told(body, result) == []
    body.call("read", x)
    assert told(body, result) == ["error"]


def test_a_doubtful_alias() -> None:
    body, x, y = viewed()
    maybe = body.packed("unknown", x, ownership=Ownership.UNKNOWN)
    body.call("fill", y)
    body.call("read", maybe)
    assert told(body, y) == ["warning"]


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
