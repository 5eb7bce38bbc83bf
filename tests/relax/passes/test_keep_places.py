"""Places of calls behind TVM's passes: each is the place of what is computed there, or none."""

# ruff: noqa: N805
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.ir.transform import PassContext
from tvm.relax import transform
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812
from tvm.target import Target

import symalloc
from symalloc.relax.ir_types import bindings_in
from symalloc.relax.passes.pipeline import KeepConditions, lower, pipeline
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.relax.passes.sizes_and_guards import GatherSizes
from symalloc.relax.source_spans import map_places, place_span, source_of
from tests.models.zoo import MODELS
from tests.relax.built import MODULES, bits, graph, rows
from tests.scale import NIGHTLY

# these sort, which no pass makes a call_tir of, or work in place, which FuseTIR refuses
OTHERS = {"inplace", "sort_logits", "sample_top_p", "top_k", "cumulative_mask"}
NAMES = [*MODELS.keys() - OTHERS] if NIGHTLY else ["bert", "gru", "mlp_residual"]
ALLOC = tvm.ir.Op.get("relax.builtin.alloc_tensor")


def _marked(module: tvm.IRModule) -> tvm.IRModule:
    """`module` behind LegalizeOps, each call placed at its kernel, and at a line of its own."""
    legal = transform.LegalizeOps()(module)
    lines: dict[int, int] = {}

    def find(var: Any, call: Any) -> Any:
        if getattr(call.op, "name", "") != "relax.call_tir":
            return None
        line = lines.setdefault(var.__chandle__(), len(lines) + 1)
        return place_span("", str(call.args[0].name_hint), line)

    return map_places(legal, find)


def _placed(module: tvm.IRModule) -> Iterator[tuple[str, str]]:
    """Each tensor that a kernel writes: the kernel, and the place of the tensor's allocation."""
    for function in module.functions.values():
        if isinstance(function, relax.Function):
            bindings = list(bindings_in(function.body))
            places = {b.var: source_of(b) for b in bindings if getattr(b.value, "op", None) == ALLOC}
            for binding in bindings:
                kernel = getattr(binding.value, "op", None)
                if isinstance(kernel, tvm.ir.GlobalVar):
                    written = [a for a in binding.value.args if a in places]
                    yield from ((str(kernel.name_hint), places.pop(a)) for a in written)


@pytest.mark.parametrize("chosen", ("default", "target"))
@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_comes_from_the_last_kernel_of_those_that_make_it(name: str, chosen: Any) -> None:
    found = list(_placed(lower(_marked(MODELS[name].build()), "llvm", pipeline=chosen)))
    assert found
    for fused, place in found:
        kernel = place.rpartition(":")[0].rstrip("0123456789")  # lowered, it has another number
        fused = fused.rstrip("0123456789")
        assert kernel and fused.endswith(kernel), (fused, place)


@I.ir_module
class Layers:
    """Two layers that become one function, and two equal calls."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), v: R.Tensor((8, 8), "float32")):
        with R.dataflow():
            a = R.matmul(x, v)
            b = R.nn.relu(a)
            c = R.matmul(b, v)
            d = R.nn.relu(c)
            R.output(d)
        return d


def _lines(module: tvm.IRModule) -> list[int]:
    """The lines that the tensors come from, counted from the last; 0 for one that is not known."""
    placed = _placed(lower(module, "llvm", pipeline="target"))
    found = [int(place.rpartition(":")[2] or 0) for _, place in placed]
    return [line and line - max(found) for line in found]


def test_calls_of_one_fused_function_come_from_different_places() -> None:
    kernels = [kernel for kernel, _ in _placed(lower(Layers, "llvm", pipeline="target"))]
    assert len(kernels) == 2 and len(set(kernels)) == 1 and kernels[0].startswith("fused_")
    assert _lines(Layers) == [-2, 0]


def test_of_equal_calls_none_is_named_rather_than_the_wrong_one() -> None:
    def write(emit: Any, x: relax.Var) -> relax.Expr:
        return relax.Tuple([emit(relax.op.nn.relu(emit(relax.op.exp(x)))) for _ in range(2)])

    assert all(line == 0 for line in _lines(graph(write, x=("n", 8))))


def test_a_pipeline_with_names_has_the_places_in_them() -> None:
    with tvm.target.Target("llvm"):
        named = pipeline("llvm", pipeline="target", names=True)(Layers)
    tags = set(re.findall(r'"(main\.[^"]*)"', named.script()))
    assert any(re.search(r"\(fused_matmul_relu, .*test_keep_places\.py:\d+\)$", tag) for tag in tags), tags


def test_a_module_without_places_has_none() -> None:
    assert [place for _, place in _placed(lower(graph(lambda _, x: relax.op.exp(x), x=(4,)), "llvm"))] == [""]


CUDA = Target({"kind": "cuda", "arch": "sm_80"})
GRAPHS = {"relax.backend.use_cuda_graph": True}


def regions(module: tvm.IRModule) -> int:
    return sum("cuda_graph_capture" in v.name_hint for v in module.get_global_vars())


def test_a_condition_that_is_captured_is_known_outside() -> None:
    with CUDA, PassContext(config=GRAPHS):
        planned = plan_lowered(lower(MODULES.Weighed, CUDA)).module
        lost = relax.transform.RewriteCUDAGraph()(planned)
        kept = relax.transform.RewriteCUDAGraph()(KeepConditions()(planned))
    with pytest.raises(Exception, match="is not defined"):
        relax.analysis.well_formed(lost)
    relax.analysis.well_formed(kept)
    assert regions(kept) == regions(lost) > 0


def test_as_much_is_captured_as_behind_the_planner_of_tvm_and_every_stage_is_clean() -> None:
    """Constant sizes lie apart from those that vary, so that what is the same at every call is captured."""
    module = MODULES.Prepared
    with PassContext(config=GRAPHS, instruments=[symalloc.VerifyMemory()]):
        ours = symalloc.pipeline(CUDA)(module)
    with PassContext(config=GRAPHS):
        theirs = relax.get_default_pipeline(CUDA)(module)
    assert regions(ours) >= regions(theirs) > 0
    assert regions(symalloc.pipeline(CUDA)(module)) == 0


@I.ir_module
class Sizes:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", "m"), "float32")):
        n, m, k = T.int64(), T.int64(), T.int64()
        a = R.call_packed("first", x, R.prim_value(n * 4), ty_args=R.Tensor((n, m), "float32"))
        b = R.call_packed("second", a, R.prim_value(n * 4), R.prim_value(n // m), ty_args=R.Tensor(ndim=2))
        c = R.match_cast(b, R.Tensor((k, 3), "float32"))
        return R.call_packed("third", c, R.prim_value(k * 2), R.prim_value(m + 1), ty_args=R.Any)


def test_sizes_known_at_entry_are_computed_once_and_those_that_may_divide_by_zero_stay() -> None:
    script = GatherSizes()(Sizes)["main"].script()
    assert script.count("n * 4") == 1
    assert script.count("m + 1") == 1
    assert "R.shape([n * 4, m + 1])" in script
    assert "n // m" in script.split("first")[1]  # in front of the call
    assert "k * 2" in script.split("match_cast")[-1]


def test_a_planned_module_computes_the_same_without_a_function_for_each_offset() -> None:
    def write(emit: Any, x: relax.Var) -> relax.Expr:
        a = emit(relax.op.exp(x))
        c = emit(relax.op.tanh(emit(relax.op.concat([a, a], axis=1))))
        d = emit(relax.op.strided_slice(c, axes=[1], begin=[4], end=[12]))
        return relax.op.multiply(emit(relax.op.add(d, a)), d)

    module = graph(write, x=("n", 8))
    built = relax.build(module, "llvm", relax_pipeline=symalloc.pipeline("llvm"))
    stock = relax.build(module, "llvm", relax_pipeline="default")
    results = [bits(relax.VirtualMachine(one, tvm.cpu()), rows(5, 8)) for one in (built, stock)]
    assert results[0] == results[1]
    assert "compute_symbolic_expr" not in built.as_text()
