"""Storages that are reserved by the shape of the tensor in them."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

from symalloc.relax.passes.pipeline import pipeline
from symalloc.relax.passes.storage_shapes import StorageShapes

HEADER = """
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", "m"), "float32")):
        n = T.int64()
        m = T.int64()
"""
ROUNDED = "R.shape([64 * ((4 * n * m + 63) // 64)])"


def module(*lines: str) -> tvm.IRModule:
    return tvm.script.from_source(HEADER + "".join(f"        {line}\n" for line in lines))


def storage(size: str, name: str = "s", dtype: str = "uint8", scope: str = "global") -> str:
    return f'{name} = R.vm.alloc_storage({size}, R.prim_value(0), R.dtype("{dtype}"), R.str("{scope}"))'


def tensor(name: str, shape: str = "[n, m]", on: str = "s", offset: str = "0", dtype: str = "float32") -> str:
    placed = f'{on}, R.prim_value({offset}), R.shape({shape}), R.dtype("{dtype}")'
    return f'{name}: R.Tensor({shape}, "{dtype}") = R.vm.alloc_tensor({placed})'


def reserved(given: tvm.IRModule) -> list[str]:
    """The extents and the element type of each storage behind the pass."""
    body = StorageShapes()(given)["main"].body
    calls = [binding.value for block in body.blocks for binding in block.bindings]
    return [
        f"{list(call.args[0].values)} {call.args[2].value}".replace("T.int64(2)", "2")
        for call in calls
        if isinstance(call, tvm.ir.Call) and call.op.name == "relax.vm.alloc_storage"
    ]


@pytest.mark.parametrize("size", ["R.shape([4 * n * m])", "R.shape([2 * m * n * 2])", ROUNDED])
def test_the_shape_of_a_tensor_that_fills_the_storage_reserves_it(size: str) -> None:
    assert reserved(module(storage(size), tensor("t"), "return t")) == ["[n, m] float32"]


def test_bytes_count_and_not_elements() -> None:
    half = tensor("t", "[m, 2 * n]", dtype="float16")
    assert reserved(module(storage("R.shape([n, m])", dtype="float32"), half, "return t")) == [
        "[m, 2 * n] float16"
    ]


def test_one_of_several_tensors_of_the_same_size() -> None:
    lines = (storage(ROUNDED), tensor("t"), tensor("u", "[m, n]"), "return (t, u)")
    assert reserved(module(*lines)) == ["[n, m] float32"]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(
            (storage(ROUNDED), tensor("t"), tensor("u", "[16]"), "return (t, u)"), id="another size"
        ),
        pytest.param((storage(ROUNDED), tensor("t"), "return (t, s)"), id="returned"),
        pytest.param(
            (storage(ROUNDED), tensor("t"), 'q = R.call_packed("f", s, ty_args=R.Any)', "return (t, q)"),
            id="handed on",
        ),
        pytest.param((storage("R.shape([8 * n * m])"), tensor("t"), "return t"), id="half full"),
        pytest.param((storage("R.shape([4 * n])"), tensor("t"), "return t"), id="too small"),
        pytest.param((storage(ROUNDED), tensor("t", offset="64"), "return t"), id="elsewhere"),
        pytest.param((storage("R.shape([64])"), tensor("t", "[16]"), "return t"), id="constant"),
        pytest.param((storage(ROUNDED, scope="global.texture"), tensor("t"), "return t"), id="a texture"),
        pytest.param(
            (
                storage("R.shape([4 * n * m])"),
                "k = T.int64()",
                'y = R.match_cast(x, R.Tensor((n, k), "float32"))',
                tensor("t", "[n, m + k - k]"),
                "return (t, y)",
            ),
            id="a symbol that has no value yet",
        ),
    ],
)
def test_others_stay(lines: tuple[str, ...]) -> None:
    given = module(*lines)
    assert StorageShapes()(given)["main"].same_as(given["main"])


def test_a_planned_module_makes_no_shape_for_the_bytes_of_one_tensor() -> None:
    builder, x = (
        relax.BlockBuilder(),
        relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"), 3), "float32")),
    )
    with builder.function("main", [x]):
        total = builder.emit(relax.op.sum(builder.emit(relax.op.exp(x)), axis=[0]))
        builder.emit_func_output(total)
    text = relax.build(builder.get(), "llvm", relax_pipeline=pipeline("llvm")).as_text()
    assert text.count("call  vm.builtin.alloc_storage") == 2
    assert text.count("call  vm.builtin.make_shape") == 1
