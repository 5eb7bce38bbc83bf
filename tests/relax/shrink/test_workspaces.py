"""Kernels' own buffers as tensors of their callers: planned, run, and compared with the kernels as given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax, tirx

import symalloc.relax.shrink.shrink_kernels as subject
from symalloc.planner.memory_plan import PlanOptions
from symalloc.planner.memory_report.non_arena import ShrunkKernel
from symalloc.relax.files.load import load_one
from symalloc.relax.files.plan_file import kernel_scratch
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.relax.shrink.shrink_kernels import ShrunkModule, plan_workspaces
from tests.models.execution import random_inputs
from tests.relax.built import bits, errors, graph, machine

TO_LIFT = Path(__file__).parent / "modules_to_lift.py"
WITH_WORKSPACE = Path(__file__).parents[1] / "modules_with_workspace.py"

SOFTMAX = ("T_softmax_maxelem", "T_softmax_exp", "T_softmax_expsum")
LIFTED: Mapping[str, tuple[Path, Mapping[str, Sequence[str]], Sequence[Mapping[str, int]]]] = {
    "Everywhere": (TO_LIFT, {"turned": ("S", "K")}, [{"n": n} for n in (0, 1, 5, 64)]),
    "Extents": (TO_LIFT, {"rows": ("S",)}, [{"n": 3, "m": 2, "k": 1}, {"n": 40, "m": 1, "k": 9}]),
    "Attention": (WITH_WORKSPACE, {"softmax": SOFTMAX}, [{"b": 1, "n": 1}, {"b": 2, "n": 33}]),
    "Mixed": (
        WITH_WORKSPACE,
        {"conv2d": ("pad_temp",), "softmax1": SOFTMAX},
        [{"h": 5, "v": 8, "m": 3, "n": 9}],
    ),
}


def _turned(
    name: str,
    head: str = "",
    store: str = 'B[i, j] = T.Cast("float32", S[j, i])',
    private: str = "private=True, ",
    kind: str = "float32",
) -> str:
    return f"""
    @T.prim_func({private}s_tir=True)
    def {name}(a: T.handle, b: T.handle):
        {head}
        n = T.int64()
        A = T.match_buffer(a, (n, n), "float32")
        B = T.match_buffer(b, (n, n), "float32")
        S = T.sblock_alloc_buffer((n, n), "{kind}")
        for i, j in T.grid(n, n):
            S[i, j] = T.Cast("{kind}", A[i, j])
        for i, j in T.grid(n, n):
            {store}
"""


_POINTED = """with T.sblock("turn"):
                u, v = T.axis.remap("SS", [i, j])
                T.reads(S[0:n, 0:n])
                T.writes(B[u, v])
                B[u, v] = T.call_extern("float32", "fabsf", T.address_of(S[v, u]))"""
_CALLS = "\n        ".join(
    f'x = R.call_tir(Left.{name}, (x,), R.Tensor((n, n), "float32"))'
    for name in ("inside", "scheduled", "handed", "public", "pointed", "wider")
)
# buffers that stay with their kernels, each for another reason
LEFT = f"""
@I.ir_module
class Left:
    @T.prim_func(private=True, s_tir=True)
    def tiny(a: T.Buffer((255,), "float32"), b: T.Buffer((255,), "float32")):
        S = T.sblock_alloc_buffer((255,), "float32")
        for i in range(255):
            S[i] = a[i] * T.float32(2)
        for i in range(255):
            b[i] = S[254 - i]

    @T.prim_func(private=True, s_tir=True)
    def inside(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, n), "float32")
        B = T.match_buffer(b, (n, n), "float32")
        S = T.sblock_alloc_buffer((n, n), "float32")
        for i in range(n):
            for j in range(n):
                S[i, j] = A[i, j]
            for j in range(n):
                B[i, j] = S[i, n - 1 - j]
{_turned("scheduled", 'T.func_attr({"tirx.is_scheduled": True})')}{_turned("handed")}
{_turned("public", private="")}{_turned("pointed", store=_POINTED)}{_turned("wider", kind="bfloat16")}
    @R.function(pure=False)
    def main(x: R.Tensor(("n", "n"), "float32"), t: R.Tensor((255,), "float32")):
        n = T.int64()
        s = R.call_tir(Left.tiny, (t,), R.Tensor((255,), "float32"))
        {_CALLS}
        seen = R.call_packed("mylib.f", s, Left.handed, ty_args=(R.Any,))
        return x
"""


@cache
def lowered(path: Path, name: str) -> tvm.IRModule:
    return lower(load_one(path, module=name), "llvm")


def lift_workspaces(given: tvm.IRModule) -> tuple[tvm.IRModule, Mapping[str, Sequence[str]]]:
    """A module whose callers allocate what kernels did, none of which was shrunk, and these buffers."""
    names = [v.name_hint for v, f in given.functions_items() if isinstance(f, tirx.PrimFunc)]
    kernels = {name: ShrunkKernel(name=name, gone=0, left={}) for name in names}
    found = plan_workspaces(ShrunkModule(module=given, given=given, kernels=kernels))
    return found.module, {name: one.planned for name, one in found.kernels.items() if one.planned}


def pooled(module: tvm.IRModule) -> set[str]:
    """The kernels that take memory from TVM's pool; none may be unreadable."""
    taken = kernel_scratch(module, {v.name_hint for v in module.get_global_vars()}, "llvm")
    assert not [one.problem for one in taken.values() if one.problem]
    return {name for name, one in taken.items() if one.steps}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIFTED)
def test_a_plan_places_the_buffers_of_kernels(name: str) -> None:
    path, expected, bindings = LIFTED[name]
    given = lowered(path, name)
    lifted, found = lift_workspaces(given)
    assert found == expected
    assert pooled(given) == {*expected}
    assert not pooled(lifted)
    plan = plan_lowered(lifted)
    assert [one[:6] for one in errors(plan.module)] == ["SYM307"] * (name == "Extents")  # k may be 0
    placed = [b.buffer.name for a in plan.plans["main"].arenas for b in a.placements]
    assert {f"{k}_{b}" for k, buffers in expected.items() for b in buffers} <= {*map(_bare, placed)}
    before, after = machine(given), machine(plan.module)
    for binding in bindings:
        for path_taken in (True, False):
            arguments = random_inputs(given["main"], binding, 0)
            if name == "Everywhere":
                arguments[1] = tvm.runtime.tensor(path_taken)
            assert bits(before, *arguments) == bits(after, *arguments), binding


def _bare(name: str) -> str:
    return name.split(".")[-1].rstrip("0123456789").removesuffix("_")


def test_what_is_read_before_it_is_written_is_found_as_in_the_kernel_itself() -> None:
    given = lowered(TO_LIFT, "Halves")
    for module in (given, plan_lowered(lift_workspaces(given)[0]).module):
        assert [one[:6] for one in errors(module)] == ["SYM208"]


@pytest.mark.parametrize("wrong", [lambda n: n - 1, lambda n: n + 1], ids=["smaller", "larger"])
def test_a_buffer_of_another_size_is_found(
    wrong: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_extent", wrong)
    found = errors(plan_lowered(lift_workspaces(lowered(TO_LIFT, "Second"))[0]).module)
    assert {one.partition(":")[0] for one in found} == {"SYM303"}


def test_a_buffer_lies_on_the_device_of_its_kernel() -> None:
    plan = plan_lowered(lift_workspaces(lowered(TO_LIFT, "Second"))[0]).plans["main"]
    (arena,) = (a for a in plan.arenas if not a.result)
    assert arena.device == 1
    assert sorted(_bare(b.buffer.name) for b in arena.placements) == ["alloc", "turned_S", "turned_S"]


BELOW_ZERO = """
@I.ir_module
class BelowZero:
    @T.prim_func(private=True, s_tir=True)
    def kernel(a: T.handle, m: T.int64, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 8), "float32")
        B = T.match_buffer(b, (n, 8), "float32")
        S = T.sblock_alloc_buffer((n - 4, 8), "float32")
        P = T.sblock_alloc_buffer((m, 8), "float32")
        for i, j in T.grid(n - 4, 8):
            S[i, j] = A[i, j] + T.float32(1)
        for i, j in T.grid(m, 8):
            P[i, j] = T.float32(2)
        for i, j in T.grid(n, 8):
            B[i, j] = T.if_then_else(i < T.min(n - 4, m), S[i, 7 - j] + P[i, j], A[i, j])

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), m: R.Prim("int64")):
        n = T.int64()
        return R.call_tir(BelowZero.kernel, (x, m), R.Tensor((n, 8), "float32"))
"""


def test_a_buffer_whose_extent_is_negative_takes_nothing() -> None:
    given = lower(tvm.script.from_source(BELOW_ZERO), "llvm")
    lifted, found = lift_workspaces(given)
    assert found == {"kernel": ("S", "P")}
    before, after = machine(given), machine(plan_lowered(lifted).module)
    for n, m in ((0, -1), (1, 2), (4, 0), (9, 3), (9, -3)):
        x = random_inputs(given["main"], {"n": n, "m": 0}, 0)[0]
        assert bits(before, x, m) == bits(after, x, m)


TOLD = """
@I.ir_module
class Told:
    @T.prim_func(private=True, s_tir=True)
    def told(a: T.handle, size: T.float32, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        S = T.sblock_alloc_buffer((T.Cast("int64", size),), "float32")
        for i in range(n):
            S[i] = A[i]
        for i in range(n):
            B[i] = S[n - 1 - i]

    @R.function
    def main(x: R.Tensor(("n",), "float32"), size: R.Prim("float32")):
        n = T.int64()
        return R.call_tir(Told.told, (x, size), R.Tensor((n,), "float32"))
"""


STAY = {
    "Left": (LEFT, "handed inside pointed public scheduled wider"),
    "Told": (TOLD, None),  # by a float, which nobody can read
    "Unknown": (TO_LIFT, "summed"),
    "Odd": (WITH_WORKSPACE, "each"),  # of a parallel loop
}


@pytest.mark.parametrize("name", STAY)
def test_buffers_that_a_caller_cannot_allocate_stay(name: str) -> None:
    source, left = STAY[name]
    given = (
        lower(tvm.script.from_source(source), "llvm") if isinstance(source, str) else lowered(source, name)
    )
    lifted, found = lift_workspaces(given)
    assert lifted.same_as(given)
    assert not found
    assert left is None or pooled(lifted) == {*left.split()}


def test_a_kernel_whose_reductions_have_two_results_takes_nothing_for_itself() -> None:
    def write(_: Any, x: relax.Var, w: relax.Var, b: relax.Var) -> relax.Expr:
        return relax.op.nn.group_norm(x, w, b, num_groups=2, channel_axis=1, axes=[2, 3])

    given = lower(graph(write, x=("n", 8, 16, 16), w=(8,), b=(8,)), "llvm")
    assert pooled(given) == {"group_norm"}
    plan = plan_lowered(given, options=PlanOptions(shrink="safe"))
    assert not pooled(plan.module)
    assert not errors(plan.module)
    before, after = machine(given), machine(plan.module)
    for rows in (0, 1, 3):
        arguments = random_inputs(given["main"], {"n": rows}, 0)
        assert bits(before, *arguments) == bits(after, *arguments)
