"""Places of calls behind TVM's passes: each is the place of what is computed there, or none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.relax import transform
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812

from symalloc.relax.ir_types import bindings_in
from symalloc.relax.passes.pipeline import lower, pipeline
from symalloc.relax.source_spans import map_places, place_span, source_of
from tests.models.zoo import MODELS
from tests.scale import NIGHTLY

# the others sort, which no pass makes a call_tir of, or work in place, which FuseTIR refuses
NAMES = (
    tuple(
        n for n in MODELS if n not in {"inplace", "sort_logits", "sample_top_p", "top_k", "cumulative_mask"}
    )
    if NIGHTLY
    else ("bert", "gru", "mlp_residual")
)
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
    def main(
        x: R.Tensor(("n", 8), "float32"),  # noqa: N805
        v: R.Tensor((8, 8), "float32"),
        w: R.Tensor((8, 8), "float32"),
    ) -> R.Tensor(("n", 8), "float32"):
        with R.dataflow():
            a = R.matmul(x, v)
            b = R.nn.relu(a)
            c = R.matmul(b, w)
            d = R.nn.relu(c)
            R.output(d)
        return d


@I.ir_module
class Twice:
    @R.function
    def main(
        x: R.Tensor(("n", 8), "float32"),  # noqa: N805
    ) -> R.Tuple(R.Tensor(("n", 8), "float32"), R.Tensor(("n", 8), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.nn.relu(a)
            c = R.exp(x)
            d = R.nn.relu(c)
            y = (b, d)
            R.output(y)
        return y


def _lines(module: tvm.IRModule) -> list[int]:
    """The lines that the tensors come from, counted from the last; 0 for one that is not known."""
    found = [
        int(place.rpartition(":")[2] or 0) for _, place in _placed(lower(module, "llvm", pipeline="target"))
    ]
    return [line and line - max(found) for line in found]


def test_calls_of_one_fused_function_come_from_different_places() -> None:
    kernels = [kernel for kernel, _ in _placed(lower(Layers, "llvm", pipeline="target"))]
    assert len(kernels) == 2 and len(set(kernels)) == 1 and kernels[0].startswith("fused_")
    assert _lines(Layers) == [-2, 0]


def test_of_equal_calls_none_is_named_rather_than_the_wrong_one() -> None:
    assert all(line == 0 for line in _lines(Twice))


def test_a_pipeline_with_names_has_the_places_in_them() -> None:
    with tvm.target.Target("llvm"):
        named = pipeline("llvm", pipeline="target", names=True)(Layers)
    tags = set(re.findall(r'"(main\.[^"]*)"', named.script()))
    assert any(re.search(r"\(fused_matmul_relu, .*test_keep_places\.py:\d+\)$", tag) for tag in tags), tags


def test_a_module_without_places_has_none() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    assert [place for _, place in _placed(lower(builder.get(), "llvm"))] == [""]
