"""Caches with room for more rows: the same bits at each length up to the last, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import tvm
from tvm import tirx

from symalloc.errors import RunError
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.relax.files.load import read_one
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import PlannedModule
from symalloc.relax.shrink import capacity
from symalloc.relax.shrink.kernel_parts import Part, with_parts
from tests.relax.built import machine
from tests.relax.donation.planned import planned, runner, same_bits_and_no_finding
from tests.scale import pairs

HEADER = "from tvm.script import ir as I, relax as R, tirx as T\n"
ATTENTION = """
@I.ir_module
class Step:
    @R.function
    def main(
        query: R.Tensor(("b", 2, "s", 8), "float32"),
        new: R.Tensor(("b", 2, "s", 8), "float32"),
        caches: R.Tuple(R.Tensor(("b", 2, "n", 8), "float32"), R.Tensor(("b", 2, "n", 8), "float32")),
    ):
        b, s, n = T.int64(), T.int64(), T.int64()
        with R.dataflow():
            keys = R.concat((caches[0], new), axis=2)
            values = R.concat((caches[1], R.exp(new)), axis=2)
            weights = R.nn.softmax(R.matmul(query, R.permute_dims(keys, axes=(0, 1, 3, 2))))
            answer = R.matmul(weights, values)
            grown = (keys, values)
            R.output(answer, grown)
        return (answer, grown)
"""
MASKED = """
@I.ir_module
class Masked:
    @R.function
    def main(
        row: R.Tensor((1, 4), "float16"),
        cache: R.Tensor(("n", 4), "float16"),
        mask: R.Tensor(("n",), "float16"),
    ):
        n = T.int64()
        longer = R.concat((cache, row), axis=0)
        total = R.sum(longer, axis=0)
        return (R.add(R.sum(mask), total), longer)
"""
BOTH = ("1.0=caches.0[room]", "1.1=caches.1[room]")


@cache
def module(text: str) -> tvm.IRModule:
    return read_one(Path("step.py"), data=(HEADER + text).encode())


CASES: Sequence[tuple[str, tuple[str, ...], Sequence[Mapping[str, int]]]] = (
    (ATTENTION, BOTH, [{"b": 2, "s": 1, "n": n, "room": 6} for n in (0, 1, 3, 5)]),
    (ATTENTION, BOTH, [{"b": 1, "s": 3, "n": n, "room": 7} for n in (0, 2, 4)]),
    (ATTENTION, (BOTH[0], "values=caches.1[more]"), [{"b": 1, "s": 1, "n": 3, "room": 4, "more": 9}]),
    (ATTENTION, BOTH[1:], [{"b": 2, "s": 1, "n": 3, "room": 6}]),
    (MASKED, ("longer=cache[room]",), [{"n": n, "room": 5} for n in (1, 4)]),
)


@pytest.mark.parametrize(("case", "pipeline"), pairs(CASES, ["default", "target"]))
def test_the_same_bits_and_no_finding(
    case: tuple[str, tuple[str, ...], Sequence[Mapping[str, int]]], pipeline: str
) -> None:
    text, alias, bindings = case
    same_bits_and_no_finding(module(text), alias, bindings, pipeline=pipeline)


def test_many_steps_in_one_memory() -> None:
    """Rows behind those in use are never looked at nor written, and the same memory goes in and out."""
    step = module(ATTENTION)
    vm, unplanned = machine(planned(step, *BOTH).module), machine(lower(step, "llvm"))
    source, room = np.random.default_rng(0), 6
    memory = [np.full((1, 2, room, 8), np.nan, dtype="float32") for _ in range(2)]
    grown = tuple(map(tvm.runtime.tensor, memory))
    theirs = tuple(tvm.runtime.tensor(one[:, :, :0]) for one in memory)
    start = [one.data_ptr() for one in grown]
    for n in range(room):
        query, new = (tvm.runtime.tensor(source.random((1, 2, 1, 8), dtype="float32")) for _ in range(2))
        answer, grown = vm["main"](query, new, grown, tvm.runtime.ShapeTuple([n]))
        expected, theirs = unplanned["main"](query, new, theirs)
        assert answer.numpy().tobytes() == expected.numpy().tobytes()
        for ours, other in zip(grown, theirs, strict=True):
            assert ours.numpy()[:, :, : n + 1].tobytes() == other.numpy().tobytes()
            assert np.isnan(ours.numpy()[:, :, n + 1 :]).all()
    assert [one.data_ptr() for one in grown] == start
    with pytest.raises(AssertionError, match=r"`1.0` does not fit into `caches.0`, which .*: got n = 6"):
        vm["main"](query, new, grown, tvm.runtime.ShapeTuple([room]))
    with pytest.raises(AssertionError, match="does not fit"):
        vm["main"](query, new, grown, tvm.runtime.ShapeTuple([-1]))
    with pytest.raises(AssertionError):
        vm["main"](query, new, grown, tvm.runtime.ShapeTuple([2**63 - 1]))


@pytest.mark.parametrize("guards", ["native", "fallback", "none"])
def test_other_guards_and_the_caller_s_results(guards: Any) -> None:
    run = runner(module(ATTENTION), *BOTH, guards=guards, results="caller").run
    at = {"b": 1, "s": 1, "n": 3, "room": 4}
    assert run(at, check=True).difference is None
    with pytest.raises(RunError, match=r"does not fit into `caches.0`"):
        run({**at, "n": 4})


def test_more_rows_than_room() -> None:
    run, at = runner(module(ATTENTION), *BOTH).run, {"b": 1, "s": 1, "n": 5}
    with pytest.raises(RunError, match=r"is \(1, 2, 5, 8\), and there is room for \(1, 2, 4, 8\)"):
        run({**at, "room": 4})
    with pytest.raises(RunError, match="no value for `room`"):
        run(at)


def test_only_what_is_new_is_stored() -> None:
    found, masked = planned(module(ATTENTION), *BOTH).module, planned(module(MASKED), "longer=cache[room]")
    script = found.script()
    assert script.count("_inplace(") == 3 and "concatenate(" not in script
    assert found["main"].params[-1].name == "lengths"
    assert len(masked.module["main"].params) == 3  # the mask tells the length


KERNELS = """
@I.ir_module
class Kernels:
    @T.prim_func(private=True, s_tir=True)
    def append(cache: T.handle, row: T.handle, longer: T.handle):
        n = T.int64()
        old = T.match_buffer(cache, (n, 4), "float32")
        new = T.match_buffer(row, (1, 4), "float32")
        out = T.match_buffer(longer, (n + 1, 4), "float32")
        for i, j in T.grid(n + 1, 4):
            out[i, j] = APPENDED

    @T.prim_func(private=True, s_tir=True)
    def look(longer: T.handle, places: T.handle, sum: T.handle):
        m = T.int64()
        all = T.match_buffer(longer, (m, 4), "float32")
        at = T.match_buffer(places, (m,), "int64")
        out = T.match_buffer(sum, (4,), "float32")
        for j in range(4):
            out[j] = T.float32(0)
        for i, j in T.grid(m, 4):
            out[j] = out[j] + LOOKED

    @R.function(pure=False)
    def main(
        cache: R.Tensor(("n", 4), "float32"),
        row: R.Tensor((1, 4), "float32"),
        places: R.Tensor(("n + 1",), "int64"),
    ):
        n = T.int64()
        cls = Kernels
        longer = R.call_tir(cls.append, (cache, row), R.Tensor((n + 1, 4), "float32"))
        sum = R.call_tir(cls.look, (longer, places), R.Tensor((4,), "float32"))
        other = OTHER
        return (sum, longer, other)
"""


def kernels(
    appended: str = "T.if_then_else(i < n, old[i, j], new[0, j])",
    looked: str = "all[i, j]",
    other: str = "R.exp(row)",
) -> str:
    return KERNELS.replace("APPENDED", appended).replace("LOOKED", looked).replace("OTHER", other)


GROWN = "1=cache[room]"


def test_a_kernel_by_hand() -> None:
    assert runner(module(kernels()), GROWN).run({"n": 3, "room": 4}, check=True).difference is None


BEHIND = "it is not proved that `{}` touches nothing behind the rows of its argument 0"


@pytest.mark.parametrize(
    ("text", "alias", "why"),
    [
        (kernels(looked="all[i + 1, j]"), GROWN, BEHIND.format("look")),
        (kernels(looked="all[m - i, j]"), GROWN, BEHIND.format("look")),
        (kernels(looked="all[at[i], j]"), GROWN, BEHIND.format("look")),
        (kernels("T.if_then_else(i < n + 1, old[i, j], new[0, j])"), GROWN, BEHIND.format("append")),
        (
            kernels("T.if_then_else(i > 0, old[i - 1, j], new[0, j])"),
            GROWN,
            "`append_with_room` reads `cache` while it writes `1`",
        ),
        (kernels(other="R.exp(cache)"), GROWN, "uses `cache` after"),
        (kernels(other="cache"), GROWN, "`cache` is returned, too"),
        (
            ATTENTION.replace("R.permute_dims(keys, axes=(0, 1, 3, 2))", "R.reshape(keys, (b, 2, 8, n + s))"),
            "1.0=caches.0[room]",
            "as bytes in a row",
        ),
        (
            kernels(other='R.call_pure_packed("f", longer, ty_args=R.Tensor((4,), "float32"))'),
            GROWN,
            "`f` takes `cache`, or what is longer, as bytes in a row",
        ),
        (kernels(), "1=cache[n]", "the function has a size `n`; call the rows otherwise"),
        (kernels(), "1=row[room]", "uses `row` after"),
        (kernels(), "0=row[room]", "do not differ in the extent of one axis alone"),
        (kernels(), "2=row[room]", "do not differ in the extent of one axis alone"),
        (kernels(), "1=nothing[room]", "there is no input `nothing`"),
        (kernels(), "cache=cache[room]", "there is no output `cache`"),
        (kernels().replace(", s_tir=True", ""), GROWN, "`append` is not proved to do the same"),
    ],
)
def test_what_is_refused(text: str, alias: str, why: str) -> None:
    with pytest.raises(PlanRefusedError) as refused:
        planned(module(text), alias)
    assert why in str(refused.value)


Parts: TypeAlias = Mapping[int, Part]


def further(kernel: tirx.PrimFunc, parts: Parts) -> tirx.PrimFunc | None:
    """Each tensor begins a row further on."""
    offsets = {at: tuple(int(one is not None) for one in part.extents) for at, part in parts.items()}
    return with_parts(kernel, {at: Part(offsets[at], part.extents) for at, part in parts.items()})


@pytest.mark.parametrize(
    ("text", "alias"),
    [
        (ATTENTION, BOTH),
        (ATTENTION, BOTH[:1]),
        (MASKED, ("longer=cache[room]",)),
        (kernels(), ("1=cache[room]",)),
    ],
)
def test_a_fault_in_the_rewrite(text: str, alias: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds of faults that are refused stand in test_kernel_parts."""
    monkeypatch.setattr(capacity, "with_parts", further)
    with pytest.raises(PlanRefusedError, match="is not proved to do the same with room behind rows"):
        planned.__wrapped__(module(text), *alias)


WHOLE = """
@I.ir_module
class Whole:
    @R.function
    def main(
        row: R.Tensor((1, 64), "float32"),
        at: R.Tensor((1, 1), "int64"),
        column: R.Tensor((1, 64), "int64"),
        cache: R.Tensor(("rows", 64), "float32"),
    ):
        rows = T.int64()
        longer = R.SCATTER
        return (R.sum(longer, axis=0), longer)
"""


@pytest.mark.parametrize(
    "call", ["scatter_nd(cache, at, row)", "scatter_elements(cache, column, row, axis=0)"]
)
def test_a_cache_that_is_there_in_full(call: str) -> None:
    """It needs no room; what is scattered is stored, and nothing else is."""
    given = module(WHOLE.replace("SCATTER", call))
    same_bits_and_no_finding(given, ["longer=cache"], [{"rows": 9}])
    script = in_place(planned(given, "longer=cache"))
    assert "cache[" not in script and script.count("] = row[") == 1


def in_place(found: PlannedModule) -> str:
    """The kernel that writes over one of its inputs."""
    (kernel,) = (f for v, f in found.module.functions_items() if v.name_hint.endswith("_inplace"))
    return kernel.script()


CHOICES = """
@I.ir_module
class Choices:
    @T.prim_func(private=True, s_tir=True)
    def choose(old: T.handle, more: T.handle, at: T.int64, out: T.handle):
        n = T.int64()
        A = T.match_buffer(old, (n, 4), "float32")
        N = T.match_buffer(more, (n, 4), "float32")
        B = T.match_buffer(out, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            B[i, j] = VALUE

    @R.function
    def main(
        old: R.Tensor(("n", 4), "float32"), more: R.Tensor(("n", 4), "float32"), at: R.Shape(["p"])
    ):
        n, p = T.int64(), T.int64()
        chosen = R.call_tir(Choices.choose, (old, more, p), R.Tensor((n, 4), "float32"))
        return (R.sum(chosen, axis=0), chosen)
"""
KEPT, NEW = "A[i, j]", "N[i, j]"


@pytest.mark.parametrize(
    ("value", "tests"),
    [
        (f"T.if_then_else(i == at, {NEW}, {KEPT})", 1),
        (f"T.if_then_else(i < at, {KEPT}, {NEW})", 1),
        (f"T.if_then_else(i < at, {KEPT}, T.if_then_else(j < 2, {NEW}, {KEPT}))", 2),
        (f"T.if_then_else(i < at, T.if_then_else(j < 2, {KEPT}, {NEW}), {KEPT})", 2),
        (f"T.if_then_else(i < at, {NEW}, T.if_then_else(j < 2, {KEPT}, {NEW}))", 0),
        (f"T.if_then_else({NEW} < T.float32(0), {NEW}, {KEPT})", 0),
        (f"T.if_then_else(i < at, {KEPT}, {KEPT} + {NEW})", 1),
        (KEPT, 0),
    ],
)
def test_what_is_there_is_not_stored_again(value: str, tests: int) -> None:
    given = module(CHOICES.replace("VALUE", value))
    same_bits_and_no_finding(given, ["chosen=old"], [{"n": 5, "p": p} for p in (0, 2, 4, 5, 9)])
    script = in_place(planned(given, "chosen=old"))
    assert script.count(" if ") + script.count(" if(") == tests
