"""The interpreter that judges mutants: silent on right modules, and it names each kind of fault."""

from __future__ import annotations

import pytest
import tvm
from tvm.script import from_source

from symalloc.planner.planner_options import PlanOptions
from tests.models.zoo import MODELS
from tests.mutation.arithmetic import UndefinedError, evaluate
from tests.mutation.harness import mutants
from tests.mutation.memory import Region, Stamp
from tests.mutation.oracle import NotModelledError, examine
from tests.mutation.subjects import OURS, THEIRS, plan_ours, plan_theirs

_HEAD = """
@I.ir_module
class Module:
    @T.prim_func
    def add_one(x: T.handle, y: T.handle):
        n = T.int64()
        a = T.match_buffer(x, (n,), "float32")
        b = T.match_buffer(y, (n,), "float32")
        for i in range(n):
            b[i] = a[i] + T.float32(1)

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        cls = Module
"""
_STORAGE = '        s = R.memory.alloc_storage(R.shape([{size}]), 0, R.str("global"), R.dtype("uint8"))\n'
_TENSOR = '        {var} = R.memory.alloc_tensor(s, {offset}, R.shape([{extent}]), R.dtype("{dtype}"))\n'


def _tensor(var: str, *, offset: str = "0", extent: str = "n", dtype: str = "float32") -> str:
    return _TENSOR.format(var=var, offset=offset, extent=extent, dtype=dtype)


def _kinds(*lines: str) -> set[str]:
    body = "".join(line if line.endswith("\n") else f"        {line}\n" for line in lines)
    mod = from_source(_HEAD + body)
    return {fault.kind for fault in examine(mod)}


@pytest.mark.parametrize("name", [n for n in THEIRS if n not in ("gru", "densenet")])
def test_silent_on_what_tvm_plans(name: str) -> None:
    assert examine(plan_theirs(name)) == []


@pytest.mark.parametrize("name", [n for n in OURS if n not in ("gru", "mlp_residual")])
def test_silent_on_what_we_plan(name: str) -> None:
    assert examine(plan_ours(name)) == []


@pytest.mark.parametrize("name", [n for n, m in MODELS.items() if m.fault])
def test_names_the_fault_of_branches(name: str) -> None:
    faults = examine(plan_theirs(name))
    assert [f.kind for f in faults] == ["not-in-scope"]
    assert False in faults[0].branches


def test_right_module() -> None:
    assert not _kinds(_STORAGE.format(size="n * 4"), _tensor("a"), "cls.add_one(x, a)", "return a")


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("exceeds", [_STORAGE.format(size="16"), _tensor("a"), "cls.add_one(x, a)", "return a"]),
        ("negative-offset", [_STORAGE.format(size="n * 4"), _tensor("a", offset="-64"), "return a"]),
        ("negative-extent", [_STORAGE.format(size="n * 4"), _tensor("a", extent="n - 8"), "return x"]),
        ("negative-size", [_STORAGE.format(size="n * 4 - 64"), "return x"]),
        (
            "byte-offset",
            [_STORAGE.format(size="n * 4 + 64"), _tensor("a", offset="64"), "cls.add_one(x, a)", "return x"],
        ),
        (
            "misaligned",
            [
                _STORAGE.format(size="n * 4 + 64"),
                _tensor("a", offset="32"),
                "b = R.memory.ensure_zero_offset(a)",
                "cls.add_one(x, b)",
                "return b",
            ],
        ),
        (
            "overwritten",
            [
                _STORAGE.format(size="n * 4"),
                _tensor("a"),
                "cls.add_one(x, a)",
                _tensor("b"),
                "cls.add_one(x, b)",
                "return a",
            ],
        ),
        (
            "use-after-kill",
            [
                _STORAGE.format(size="n * 4"),
                _tensor("a"),
                "cls.add_one(x, a)",
                "R.memory.kill_tensor(a)",
                "cls.add_one(a, x)",
                "return x",
            ],
        ),
        (
            "use-after-kill",
            [
                _STORAGE.format(size="n * 4"),
                "R.memory.kill_storage(s)",
                _tensor("a"),
                "cls.add_one(x, a)",
                "return a",
            ],
        ),
        (
            "double-kill",
            [
                _STORAGE.format(size="n * 4"),
                "R.memory.kill_storage(s)",
                "R.memory.kill_storage(s)",
                "return x",
            ],
        ),
        ("unwritten", [_STORAGE.format(size="n * 4"), _tensor("a"), "return a"]),
    ],
)
def test_names_the_kind(kind: str, lines: list[str]) -> None:
    assert _kinds(*lines) == {kind}


def test_names_an_element_type_that_a_kernel_refuses() -> None:
    changed = mutants([("mlp", plan_theirs("mlp_dynamic_batch"))], tries=1, seed=0)
    (mutant,) = [m for m in changed if m.operator == "change dtype"]
    assert "kernel-argument" in {f.kind for f in examine(mutant.module)}


def test_views_share_what_was_written() -> None:
    reshape = 'b = R.call_packed("vm.builtin.reshape", a, R.shape([n]), ty_args=(R.Tensor((n,), "float32"),))'
    lines = [_STORAGE.format(size="n * 4"), _tensor("a"), "cls.add_one(x, a)", reshape, "return b"]
    assert not _kinds(*lines)
    again = [*lines[:-1], _tensor("d"), "cls.add_one(x, d)", "return b"]
    assert _kinds(*again) == {"overwritten"}


def test_unknown_functions_are_refused() -> None:
    with pytest.raises(NotModelledError, match=r"some\.function"):
        _kinds('y = R.call_packed("some.function", x, ty_args=(R.Tensor((n,), "float32"),))', "return y")


_GUARDED = """
@I.ir_module
class Module:
    @T.prim_func
    def guard(n: T.int64):
        assert n <= {bound}, ("ValueError", ["too many"])

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        R.call_packed("guard", R.prim_value(n), ty_args=R.Tuple())
        s = R.memory.alloc_storage(R.shape([256]), 0, R.str("global"), R.dtype("uint8"))
        a = R.memory.alloc_tensor(s, 0, R.shape([n]), R.dtype("float32"))
        return x
"""


@pytest.mark.parametrize(("bound", "kinds"), [(64, set()), (1000, {"exceeds"})])
def test_a_guard_that_is_a_kernel_ends_the_call(bound: int, kinds: set[str]) -> None:
    mod = from_source(_GUARDED.format(bound=bound))
    assert {fault.kind for fault in examine(mod)} == kinds


def test_native_guards_are_walked_through() -> None:
    planned = plan_ours("mlp_residual", PlanOptions(guards="native"))
    assert any("assert" in f.script() for _, f in planned.functions_items())
    assert examine(planned) == []


def test_region_keeps_pieces_apart() -> None:
    region, one, two = Region(100), Stamp(), Stamp()
    region.write(0, 60, one)
    region.write(20, 30, two)
    assert [(b, e) for b, e, _ in region.pieces] == [(0, 20), (20, 30), (30, 60)]
    assert region.strangers(0, 60, one) and not region.strangers(30, 60, one)
    assert region.strangers(19, 21, two) and not region.holes(0, 60) and region.holes(50, 61)
    assert not region.strangers(10, 10, two) and not region.holes(70, 70)


def test_arithmetic_is_pythons() -> None:
    n = tvm.tirx.Var("n", "int64")
    expression = tvm.tirx.max(tvm.tirx.floordiv(n - 7, 4) * 3, tvm.tirx.floormod(n, 5))
    for value in range(-10, 20):
        assert evaluate(expression, {"n": value}) == max((value - 7) // 4 * 3, value % 5)
    chosen = tvm.tirx.if_then_else(n < 3, n, 2 * n)
    assert [evaluate(chosen, {"n": v}) for v in (2, 3)] == [2, 6]
    with pytest.raises(UndefinedError):
        evaluate(n, {})
