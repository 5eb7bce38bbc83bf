"""Pipelines that make TVM's planner themselves, taken over by `symalloc.replace_tvm_planner`."""

# ruff: noqa: N803, N805
from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir.instrument import pass_instrument
from tvm.ir.transform import Pass, PassContext, Sequential
from tvm.relax import transform
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

import symalloc
from symalloc.errors import UsageError
from symalloc.pipelines import register_pipelines
from symalloc.program import ir
from symalloc.program.ir import AllocFresh, AllocStorage
from symalloc.program.types import byte_count
from symalloc.relax.extract import calls, extract
from symalloc.relax.files.load import lower_or_refuse
from symalloc.relax.run.machine import planned_by_tvm
from tests.relax.built import MODULES, bits, graph


@tvm.transform.module_pass(opt_level=0, name="AttachMetadata")
class _AttachMetadata:
    """Adds a function between the planner and what lowers its storages, as compilers of LLMs do."""

    def transform_module(self, module: tvm.IRModule, _: PassContext) -> tvm.IRModule:
        with (builder := relax.BlockBuilder(module)).function("_metadata", []):
            builder.emit_func_output(relax.ShapeExpr([1]))
        return builder.get()


_LOWERING = (
    "LegalizeOps",
    "RewriteDataflowReshape",
    "ToNonDataflow",
    "RemovePurityChecking",
    "CallTIRRewrite",
)
_FINISHING = (
    *("RewriteCUDAGraph", "LowerAllocTensor", "KillAfterLastUse", "LowerRuntimeBuiltin", "VMShapeLower"),
    "AttachGlobalSymbol",
)


def _pipeline(planner: Pass | None = None) -> Pass:
    """A pipeline that makes its passes when it runs, also the planner if none is given.

    It has no ComputePrimValue.
    """

    @tvm.transform.module_pass(opt_level=0, name="compile_llm")
    def run(module: tvm.IRModule, _: PassContext) -> tvm.IRModule:
        lowering, finishing = ([getattr(transform, n)() for n in names] for names in (_LOWERING, _FINISHING))
        finishing = [planner or transform.StaticPlanBlockMemory(), _AttachMetadata(), *finishing]
        return Sequential([Sequential(lowering), Sequential(finishing, name="finish")])(module)

    return run


def _finished(planner: Pass | None = None) -> str:
    with tvm.target.Target("llvm"):
        return str(_pipeline(planner)(MODULES.Chain))


@pytest.mark.parametrize("name", ["Chain", "Nested"])
def test_a_pipeline_that_makes_the_planner_gets_ours(name: str) -> None:
    module = getattr(MODULES, name)
    conditions = [np.array(True) for _ in module["main"].params[:-1]]
    x = np.random.default_rng(0).random((6, 8) if name == "Chain" else (6,), dtype="float32")
    with tvm.target.Target("llvm"):
        tvms = str(_pipeline()(module))
        same = str(symalloc.pipeline("llvm", pipeline=_pipeline())(module))
        with symalloc.replace_tvm_planner():
            text = str(_pipeline()(module))
    assert sorted(text.split()) == sorted(same.split()) != sorted(tvms.split())
    assert "main_check" in text  # the guard, in a kernel
    assert text.count("vm.alloc_storage") < tvms.count("vm.alloc_storage")
    with symalloc.replace_tvm_planner():
        planned = relax.build(module, "llvm", relax_pipeline=_pipeline())
    # TVM's plan overwrites tensors where an If allocates: what runs beside ours has no plan
    unplanned = relax.build(module, "llvm", relax_pipeline=_pipeline(Sequential([])))
    ours, theirs = (relax.VirtualMachine(program, tvm.cpu()) for program in (planned, unplanned))
    assert bits(ours, *conditions, x) == bits(theirs, *conditions, x)


def test_the_innermost_options_count_and_go_on_exit() -> None:
    call, made_before = Pass.__call__, transform.StaticPlanBlockMemory()
    with symalloc.replace_tvm_planner():
        assert "elem_offset" in _finished(made_before)
        assert "main_check" in _finished()
        with symalloc.replace_tvm_planner(guards="none"):
            assert "main_check" not in _finished()
        assert "main_check" in _finished()
        with pytest.raises(KeyError), symalloc.replace_tvm_planner(guards="none"):
            raise KeyError
        assert "main_check" in _finished()
    assert "elem_offset" not in _finished() + _finished(made_before)
    assert Pass.__call__ is call


def test_other_threads_keep_tvms_planner() -> None:
    assert not _in_thread(lambda: "elem_offset" in _finished())

    def replaced() -> bool:
        with symalloc.replace_tvm_planner():
            return "elem_offset" in _finished()

    with symalloc.replace_tvm_planner():
        assert not _in_thread(lambda: "elem_offset" in _finished())
    assert _in_thread(replaced)


def _in_thread(asked: Callable[[], bool]) -> bool:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(asked()))
    thread.start()
    thread.join()
    return found.pop()


def test_what_symalloc_compares_with_stays() -> None:
    lowered = lower_or_refuse(MODULES.Chain, "llvm", "default")
    expected = planned_by_tvm(lowered)
    with symalloc.replace_tvm_planner():
        assert tvm_ffi.structural_equal(planned_by_tvm(lowered), expected)


def test_what_is_no_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="did you mean 'assert'"):
        symalloc.replace_tvm_planner(guards="asserts")  # type: ignore[arg-type]
    monkeypatch.setenv("SYMALLOC_REPLACE_TVM_PLANNER", "yes")
    with pytest.raises(UsageError, match="SYMALLOC_REPLACE_TVM_PLANNER is 'yes'; it must be one of 0, 1"):
        register_pipelines()


def test_tensors_are_named_where_it_is_asked_for() -> None:
    module, pool = MODULES.Chain, symalloc.Pool()
    x = tvm.runtime.tensor(np.ones((3, 8), "float32"))

    def ran(*, names: bool) -> tuple[bytes, list[str]]:
        with symalloc.replace_tvm_planner(names=names):
            built = relax.build(module, "llvm", relax_pipeline=_pipeline())
        machine = relax.VirtualMachine(built, tvm.cpu(), memory_cfg=symalloc.memory_cfg(pool))
        with symalloc.pool.statistics(pool) as counted:
            result = machine["main"](x).numpy()
        return result.tobytes(), sorted(counted.figures().tags)

    (plain, untagged), (named, tags) = ran(names=False), ran(names=True)
    assert plain == named and untagged == [""]
    assert any(tag.startswith("main.") and "(subtract" in tag for tag in tags), tags


# -- the bounds that it picks ------------------------------------------------------------------------------


SERVED = {
    "tir_var_upper_bound": {"n": 32, "m": 7},
    "relax.memory_plan_dynamic_func_output": True,
    "relax.rewrite_cuda_graph.capture_symbolic_vars": ["n"],
    "num_input": 1,
}


def _served(*, results: bool = True) -> tvm.IRModule:
    """A chain with bounds for n, which sizes tensors, and for m, which does not; v has no bound."""

    def write(emit: Any, x: relax.Var, y: relax.Var, w: relax.Var) -> relax.Expr:
        a = emit(relax.op.exp(x))
        c = emit(relax.op.subtract(emit(relax.op.multiply(a, x)), a))
        return relax.Tuple([emit(relax.op.matmul(c, w)), y])

    attributes = SERVED | {"relax.memory_plan_dynamic_func_output": results, "num_input": 2}
    return graph(write, attrs=attributes, x=("n", 64), y=("m",), w=(64, "v"))


def _storages(module: tvm.IRModule) -> list[str]:
    """The sizes of storages, and of tensors without."""
    found = []
    for one in extract(module, name="module").functions["main"].body.instructions:
        if isinstance(one, AllocStorage | AllocFresh):
            found.append(str(one.size if isinstance(one, AllocStorage) else byte_count(one.shape, one.dtype)))
    return found


def _behind(
    name: str, module: tvm.IRModule, *, graphs: bool = False, **options: Any
) -> tuple[tvm.IRModule, Mapping[str, str]]:
    """The module behind a pass, and what the planner says that it picked."""
    found: list[tvm.IRModule] = []

    @pass_instrument
    class Keeper:
        def run_after_pass(self, behind: tvm.IRModule, info: Any) -> None:
            if info.name == name:
                found.append(behind)

    context = PassContext(config={"relax.backend.use_cuda_graph": graphs}, instruments=[Keeper()])
    with tvm.target.Target("llvm"), context, symalloc.replace_tvm_planner(**options) as picked:
        _pipeline()(module)
    return found[0], picked


def _behind_planner(module: tvm.IRModule, **options: Any) -> tuple[list[str], str]:
    """The sizes of the storages that the planner makes, and what it says that it picked."""
    behind, picked = _behind("PlanMemory", module, **options)
    return _storages(behind), picked.get("main", "")


@pytest.mark.parametrize("graphs", [False, True])
def test_memory_is_reserved_for_the_bounds_that_size_it(graphs: bool) -> None:
    why = "CUDA graphs are captured" if graphs else "AttachMetadata may count storages"
    storages, picked = _behind_planner(_served(), graphs=graphs)
    assert storages == [str(3 * 32 * 64 * 4), "128*v"]  # the result, for 32 rows
    assert picked == f"reserved for n <= 32, as {why}"
    apart, _ = _behind_planner(_served(results=False), graphs=graphs)
    assert apart == [*storages[:1], "4*n*v"]
    ignored, said = _behind_planner(_served(), graphs=graphs, bounds="ignore")
    assert ignored == [*(["768*n"] if graphs else ["512*n", "256*n"]), "4*n*v"] and not said


def test_only_bounds_that_it_relies_on_are_checked() -> None:
    module = _served()
    with symalloc.replace_tvm_planner() as picked:
        built = relax.build(module, "llvm", relax_pipeline=relax.get_pipeline("default"))
    assert picked["main"].endswith("as the pool of TVM's machine keeps a block for each size")
    machine = relax.VirtualMachine(built, tvm.cpu())
    x, w = np.random.default_rng(0).random((32, 64), "float32"), np.ones((64, 5), "float32")

    def called(rows: int, extra: int) -> Any:
        given = (np.resize(x, (rows, 64)), np.zeros(extra, "float32"), w)
        return machine["main"](*map(tvm.runtime.tensor, given))

    assert called(32, 9)[0].numpy() == pytest.approx((np.exp(x) * x - np.exp(x)) @ w, rel=1e-4)
    with pytest.raises(AssertionError, match="got n = 33"):
        called(33, 7)


def test_what_no_bound_sizes_is_sized_at_each_call() -> None:
    module = MODULES.Chain
    assert _behind_planner(module)[1] == "sized at each call, as no declared bound sizes a tensor"
    storages, picked = _behind_planner(_served(), guards="none")
    assert (
        storages == ["512*n", "256*n", "4*n*v"] and picked == "sized at each call, as no guard checks a bound"
    )


def test_what_one_buffer_cannot_hold_is_said(caplog: pytest.LogCaptureFixture) -> None:
    storages, _ = _behind_planner(_served(), max_buffer="16KiB")
    assert storages == ["16384", "8192", "128*v"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "`main`: `alloc3` can take more than 16384 B: 128*v B"
    ]


def test_what_reads_storages_finds_those_of_constant_size_apart() -> None:
    def write(emit: Any, x: relax.Var) -> relax.Expr:
        a = emit(relax.op.exp(x))
        total = emit(relax.op.exp(relax.op.sum(a, axis=[0])))
        return relax.op.add(emit(relax.op.add(a, total)), x)

    storages, _ = _behind_planner(graph(write, x=("n", 8)))
    assert [size for size in storages if size.isdigit()] == ["128"]


@pytest.mark.parametrize("view", [False, True])
def test_no_result_lies_in_the_memory_of_a_graph(view: bool) -> None:
    def write(emit: Any, x: relax.Var) -> relax.Expr:
        made = emit(relax.op.exp(emit(relax.op.exp(emit(relax.op.exp(x))))))
        made = emit(relax.op.reshape(made, (x.ty.shape[0] * 64,))) if view else made
        return relax.Tuple([made, x])

    kept, _ = _behind("RewriteCUDAGraph", graph(write, attrs=SERVED, x=("n", 64)), graphs=True)
    text = str(kept["main"])
    assert "run_or_capture" in text  # what computes the rest
    assert text.count("R.builtin.alloc_tensor(R.shape([8192])") == 1
    shown = re.search(r"(\w+): .* = R.call_packed\(\"runtime.TVMTensorCreateView\"", text)
    assert shown and re.search(rf"^ +tir_exp\(\w+, {shown[1]}\)$", text, re.M)


@I.ir_module
class Module:
    @T.prim_func
    def twice(A: T.handle, B: T.handle):
        n = T.int64()
        a = T.match_buffer(A, (n,), "float32")
        b = T.match_buffer(B, (n,), "float32")
        for i in range(n):
            b[i] = a[i] + a[i]

    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        m = T.int64()
        cls = Module
        a = R.call_packed(
            "mylib.alloc_pinned", R.shape([m]), R.dtype("float32"), ty_args=R.Tensor((m,), "float32")
        )
        cls.twice(x, a)
        b = R.builtin.alloc_tensor(R.shape([m]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        cls.twice(a, b)
        c = R.builtin.alloc_tensor(R.shape([m]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        cls.twice(b, c)
        return c


def _pinned_tensor(site: calls.CallSite) -> ir.Instruction:
    """As CONTRIBUTING has it."""
    return ir.AllocFresh(
        **site.head,
        shape=site.context.types.shape_or_none(site.arguments[0]),
        dtype=calls._known_dtype(site, 1),
        device=0,
        giver="mylib.alloc_pinned",
    )


def test_a_tensor_of_another_pool_is_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setitem(calls._PACKED, "mylib.alloc_pinned", (2, _pinned_tensor))  # type: ignore[arg-type]

    def alloc(shape: tvm.runtime.ShapeTuple, dtype: object) -> tvm.runtime.Tensor:
        given.append(tvm.runtime.empty(tuple(shape), str(dtype)))
        return given[-1]

    tvm.register_global_func("mylib.alloc_pinned", alloc, override=True)
    try:
        planned = symalloc.plan(Module)
        reasons = {left.name: left.reason for left in planned.plans["main"].unplanned}
        assert reasons["a"] == "`mylib.alloc_pinned` gives its memory"
        built = relax.build(planned.module, "llvm", relax_pipeline=symalloc.pipeline("llvm"))
        x = np.arange(5, dtype="float32")
        assert bits(relax.VirtualMachine(built, tvm.cpu()), x) == [(8 * x).tobytes()]
        np.testing.assert_array_equal(given[0].numpy(), 2 * x)
    finally:
        tvm_ffi.registry.remove_global_func("mylib.alloc_pinned")
