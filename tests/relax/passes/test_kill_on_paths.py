"""What a function holds: on every path no more than is needed, however values cross an If."""

# ruff: noqa: F841, N805, N812, SIM108
from __future__ import annotations

from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import symalloc
from symalloc.relax.passes.pipeline import finishing_pipeline, lower
from symalloc.session.linting import VerifyMemory
from tests.models.measure import ALLOCATOR, compiler, floor, load, measured
from tests.relax.built import graph

ROWS = 7
PATHS = tuple(product((False, True), repeat=2))


@I.ir_module
class Crossing:
    """A tuple out of an If, a tensor from before yielded by one branch, and one that dies in the other."""

    @R.function
    def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor(("n", 64), "float32")):
        s = R.exp(x)
        t = R.add(s, x)
        if c:
            a = R.multiply(s, t)
            if d:
                y = (R.multiply(R.multiply(R.exp(a), t), s), s)
            else:
                y = (a, a)
        else:
            y = (t, t)
        u = y[0]
        o = y[1]
        w = R.exp(R.concat([u, u], axis=1))
        return R.multiply(R.sum(R.multiply(w, w), axis=[1], keepdims=True), o)


@I.ir_module
class Cast:
    """Each branch yields other rows, which are known only behind the If."""

    @R.function
    def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor(("n", 64), "float32")):
        k = T.int64()
        s = R.exp(x)
        if c:
            y = R.match_cast(R.concat([s, x, s], axis=0), R.Tensor(ndim=2, dtype="float32"))
        else:
            y = R.match_cast(R.tanh(s), R.Tensor(ndim=2, dtype="float32"))
        z = R.match_cast(y, R.Tensor((k, 64), "float32"))
        e = R.exp(z)
        f = R.multiply(e, e)
        return R.sum(R.add(f, f), axis=[0])


@I.ir_module
class Computed:
    """The condition is an intermediate tensor; a result that nothing uses, and two Ifs in a row."""

    @R.function
    def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor(("n", 64), "float32")):
        s = R.exp(x)
        t = R.concat([s, x], axis=1)
        if R.logical_or(c, d):
            y = R.multiply(R.exp(t), t)
        else:
            y = t
        u = R.exp(y)
        if d:
            z = R.add(u, u)
        else:
            z = u
        return R.exp(R.add(R.sum(z, axis=[1], keepdims=True), x))


@tvm.register_global_func("test_kill_on_paths.same", override=True)
def same(tensor: Any) -> Any:
    return tensor


@I.ir_module
class Unused:
    """No If; what a call returns is its argument, and nothing uses it."""

    @R.function(pure=False)
    def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor(("n", 64), "float32")):
        n = T.int64()
        s = R.exp(x)
        u = R.call_packed("test_kill_on_paths.same", s, ty_args=R.Tensor((n, 64), "float32"))
        t = R.sum(s, axis=[1], keepdims=True)
        return R.exp(R.concat([t, t], axis=1))


MODULES = {"Crossing": Crossing, "Cast": Cast, "Computed": Computed, "Unused": Unused}


def arguments(c: bool, d: bool) -> list[Any]:
    x = np.random.default_rng(0).standard_normal((ROWS, 64)).astype("float32")
    return [tvm.runtime.tensor(value) for value in (np.array(c), np.array(d), x)]


def machine(module: tvm.IRModule, mode: str = "bytecode") -> relax.VirtualMachine:
    """Every tensor with a storage of its own."""
    built = relax.build(
        lower(module, "llvm"), "llvm", relax_pipeline=finishing_pipeline("llvm"), exec_mode=mode
    )
    return relax.VirtualMachine(built, tvm.cpu(), memory_cfg={tvm.cpu(): ALLOCATOR})


@pytest.fixture(autouse=True, scope="module")
def counting() -> None:
    if compiler() is None:
        pytest.skip("no C++ compiler for the allocator that counts")
    load()


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_path_holds_more_than_it_needs(name: str) -> None:
    ours, compiled = machine(MODULES[name]), machine(MODULES[name], "compiled")
    for path in PATHS:
        needed = floor(ours, "main", arguments(*path)).planned
        for built in (ours, compiled):
            _, usage = measured(lambda built=built, path=path: built["main"](*arguments(*path)))
            assert usage.planned == needed, path


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_pass_of_a_build_brings_a_fault_in(name: str) -> None:
    with tvm.transform.PassContext(instruments=[VerifyMemory()]):
        relax.build(MODULES[name], "llvm", relax_pipeline=symalloc.pipeline("llvm"))


def test_a_view_of_a_constant_holds_no_tensor_of_a_call() -> None:
    def write(emit: Any, x: relax.Var) -> relax.Expr:
        view = emit(relax.op.reshape(relax.const(np.arange(8, dtype="float32")), (2, 4)))
        total = emit(relax.op.sum(emit(relax.op.exp(x)), axis=[0], keepdims=True))
        return relax.op.add(total, view)

    given = tvm.runtime.tensor(np.zeros((3, 4), "float32"))
    found = machine(graph(write, x=("n", 4)))["main"](given)
    assert found.numpy().tolist() == [[3, 4, 5, 6], [7, 8, 9, 10]]


STEPS = (relax.op.exp, relax.op.sin, relax.op.cos) * 2
CHAIN = graph(lambda emit, x: reduce(lambda one, step: emit(step(one)), STEPS, x), x=("n", 64))


@I.ir_module
class Turns:
    """Never more than two tensors at a time, as in the chain."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 64), "float32")):
        b = R.sin(R.exp(x))
        if c:
            y = R.sin(R.exp(R.cos(b)))
        else:
            y = R.cos(b)
        return R.sin(R.cos(R.exp(y)))


@pytest.mark.parametrize(
    ("module", "plan"),
    [(CHAIN, "none"), (CHAIN, "tvm"), (CHAIN, "symalloc"), (Turns, "none"), (Turns, "symalloc")],
)
def test_what_has_a_name_in_a_pool_goes_as_early(module: tvm.IRModule, plan: str) -> None:
    found = symalloc.run(module, {"n": ROWS}, plan=plan, pool=symalloc.Pool(), check=True)  # type: ignore[arg-type]
    assert found.difference is None and found.pool is not None
    tensors = 3 if plan == "tvm" else 2  # two storages and the result
    assert found.pool.peak_live <= tensors * ROWS * 64 * 4 + 512  # and the heap of shapes, the condition


@I.ir_module
class Folded:
    """What depends on no input is a constant behind FoldConstant, bound to a name, also on one path only."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32")):
        a = R.arange(0, 8, 1, dtype="float32")
        b = R.add(a, a)
        s = R.add(x, b)
        if c:
            k = R.arange(8, 16, 1, dtype="float32")
            y = R.sum(R.multiply(s, R.add(k, k)), axis=[0])
        else:
            y = R.arange(16, 24, 1, dtype="float32")
        z = R.add(x, y)
        w = R.add(z, z)
        return R.add(w, w)


@pytest.mark.parametrize("pipeline", ["default", "target"])
def test_constants_that_are_folded_are_not_killed(pipeline: Any) -> None:
    passes = symalloc.pipeline("llvm", pipeline=pipeline)
    machine = relax.VirtualMachine(relax.build(Folded, "llvm", relax_pipeline=passes), tvm.cpu())
    rows = np.arange(ROWS * 8, dtype="float32").reshape(ROWS, 8)
    chosen = ((rows + 2 * np.arange(8)) * (2 * np.arange(8, 16))).sum(0)
    for flag, y in ((True, chosen), (False, np.arange(16, 24))):
        found = machine["main"](*map(tvm.runtime.tensor, (np.array(flag), rows))).numpy()
        assert (found == 4 * (rows + y)).all()
