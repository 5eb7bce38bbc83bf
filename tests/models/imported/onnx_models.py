"""Networks that come through ONNX; `regenerate` imports them.  Needs onnx."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm.relax.frontend.onnx import from_onnx

__all__ = ["ONNX_MODELS"]

ONNX_MODELS: dict[str, Callable[[], tvm.IRModule]] = {}
Dims = Sequence[int | str]


def _model(build: Callable[[], tvm.IRModule]) -> Callable[[], tvm.IRModule]:
    ONNX_MODELS[build.__name__] = build
    return build


node = helper.make_node


def value(name: str, dims: Dims, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(dims))


def imported(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
) -> tvm.IRModule:
    tensors = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "model", list(inputs), list(outputs), tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    onnx.checker.check_model(made)
    return from_onnx(made, keep_params_in_input=False)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


@_model
def attention() -> tvm.IRModule:
    """Batch and length with names of their own."""
    nodes = [
        node("MatMul", ["x", "wq"], ["q"]),
        node("MatMul", ["x", "wk"], ["k"]),
        node("MatMul", ["x", "wv"], ["v"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v"], ["y"]),
    ]
    weights = {name: noise(16, 16) for name in ("wq", "wk", "wv")}
    dims = ("batch", "length", 16)
    return imported(nodes, [value("x", dims)], [value("y", dims)], weights)


@_model
def residual_image() -> tvm.IRModule:
    """Convolutions with a skip connection, pooling, a head; over the batch."""
    nodes = [
        node("Conv", ["x", "k1"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "k2"], ["c"], pads=[1, 1, 1, 1]),
        node("Add", ["a", "c"], ["d"]),
        node("Relu", ["d"], ["e"]),
        node("GlobalAveragePool", ["e"], ["f"]),
        node("Flatten", ["f"], ["g"]),
        node("Gemm", ["g", "w"], ["y"], transB=1),
    ]
    weights = {"k1": noise(8, 3, 3, 3), "k2": noise(8, 8, 3, 3), "w": noise(5, 8)}
    return imported(nodes, [value("x", ("batch", 3, 16, 16))], [value("y", ("batch", 5))], weights)


@_model
def inception() -> tvm.IRModule:
    """Branches of different width, joined by Concat; over the batch."""
    nodes = [
        node("Conv", ["x", "k1"], ["a"]),
        node("Conv", ["x", "k3"], ["b"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["x"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Concat", ["a", "b", "c"], ["d"], axis=1),
        node("AveragePool", ["d"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    weights = {"k1": noise(4, 3, 1, 1), "k3": noise(6, 3, 3, 3)}
    return imported(nodes, [value("x", ("batch", 3, 12, 12))], [value("y", ("batch", 13, 6, 6))], weights)


@_model
def branch() -> tvm.IRModule:
    """An If on a value."""
    then = helper.make_graph(
        [node("Mul", ["x", "two"], ["t"]), node("Exp", ["t"], ["then_out"])],
        "then", [], [value("then_out", ("n", 4))],
    )  # fmt: skip
    otherwise = helper.make_graph(
        [node("Relu", ["x"], ["r"]), node("Add", ["r", "two"], ["else_out"])],
        "else", [], [value("else_out", ("n", 4))],
    )  # fmt: skip
    nodes = [node("If", ["flag"], ["y"], then_branch=then, else_branch=otherwise)]
    inputs = [value("x", ("n", 4)), value("flag", (), TensorProto.BOOL)]
    return imported(nodes, inputs, [value("y", ("n", 4))], {"two": np.array([2], dtype=np.float32)})


@_model
def topk() -> tvm.IRModule:
    nodes = [node("TopK", ["x", "k"], ["values", "indices"], axis=1)]
    outputs = [value("values", ("n", 3)), value("indices", ("n", 3), TensorProto.INT64)]
    return imported(nodes, [value("x", ("n", 10))], outputs, {"k": np.array([3], dtype=np.int64)})


@_model
def cumsum() -> tvm.IRModule:
    nodes = [node("CumSum", ["x", "axis"], ["c"]), node("Tanh", ["c"], ["y"])]
    axis = {"axis": np.array(1, dtype=np.int64)}
    return imported(nodes, [value("x", ("n", 6))], [value("y", ("n", 6))], axis)


@_model
def scatter() -> tvm.IRModule:
    nodes = [node("ScatterElements", ["x", "i", "u"], ["y"], axis=1)]
    inputs = [value("x", ("n", 8)), value("i", ("n", 3), TensorProto.INT64), value("u", ("n", 3))]
    return imported(nodes, inputs, [value("y", ("n", 8))])


@_model
def gather() -> tvm.IRModule:
    nodes = [node("Gather", ["table", "i"], ["g"]), node("Relu", ["g"], ["y"])]
    inputs = [value("i", ("n", "m"), TensorProto.INT64)]
    return imported(nodes, inputs, [value("y", ("n", "m", 8))], {"table": noise(20, 8)})


@_model
def slices() -> tvm.IRModule:
    """Split, Slice with steps, Concat, Pad."""
    constants = {
        "starts": np.array([1], dtype=np.int64), "ends": np.array([8], dtype=np.int64),
        "axes": np.array([1], dtype=np.int64), "steps": np.array([2], dtype=np.int64),
        "pads": np.array([0, 1, 0, 2], dtype=np.int64),
    }  # fmt: skip
    nodes = [
        node("Slice", ["x", "starts", "ends", "axes", "steps"], ["a"]),
        node("Pad", ["a", "pads"], ["b"]),
        node("Split", ["x"], ["c", "d"], axis=1),
        node("Concat", ["b", "c", "d"], ["e"], axis=1),
        node("Sigmoid", ["e"], ["y"]),
    ]
    return imported(nodes, [value("x", ("n", 8))], [value("y", ("n", 15))], constants)


@_model
def resize() -> tvm.IRModule:
    constants = {"scales": np.array([1, 1, 2, 2], dtype=np.float32)}
    nodes = [
        node("Resize", ["x", "", "scales"], ["a"], mode="linear"),
        node("Relu", ["a"], ["y"]),
    ]
    return imported(nodes, [value("x", ("n", 2, 6, 6))], [value("y", ("n", 2, 12, 12))], constants)


@_model
def nonzero() -> tvm.IRModule:
    """A result whose size depends on data, beside ordinary ones."""
    nodes = [
        node("NonZero", ["x"], ["i"]),
        node("Exp", ["x"], ["e"]),
        node("Softmax", ["e"], ["y"], axis=-1),
    ]
    outputs = [value("i", (2, "k"), TensorProto.INT64), value("y", ("n", 6))]
    return imported(nodes, [value("x", ("n", 6))], outputs)


@_model
def transposed_convolution() -> tvm.IRModule:
    nodes = [
        node("ConvTranspose", ["x", "k"], ["a"], strides=[2, 2]),
        node("InstanceNormalization", ["a", "scale", "bias"], ["y"]),
    ]
    weights = {"k": noise(3, 4, 2, 2), "scale": noise(4), "bias": noise(4)}
    return imported(nodes, [value("x", ("n", 3, 5, 5))], [value("y", ("n", 4, 10, 10))], weights)


@_model
def two_lengths() -> tvm.IRModule:
    """A product over two lengths, reduced both ways."""
    nodes = [
        node("Transpose", ["b"], ["bt"], perm=[1, 0]),
        node("MatMul", ["a", "bt"], ["c"]),
        node("ReduceMax", ["c"], ["rows"], axes=[1], keepdims=1),
        node("Sub", ["c", "rows"], ["d"]),
        node("Exp", ["d"], ["y"]),
    ]
    inputs = [value("a", ("rows", 8)), value("b", ("columns", 8))]
    return imported(nodes, inputs, [value("y", ("rows", "columns"))])


@_model
def einsum() -> tvm.IRModule:
    nodes = [
        node("Einsum", ["a", "b"], ["c"], equation="bik,bjk->bij"),
        node("Relu", ["c"], ["y"]),
    ]
    inputs = [value("a", ("batch", "rows", 8)), value("b", ("batch", "columns", 8))]
    return imported(nodes, inputs, [value("y", ("batch", "rows", "columns"))])


@_model
def nested_branch() -> tvm.IRModule:
    """An If in an If; each branch makes tensors of its own."""

    def side(name: str, *operators: str, nodes: Sequence[Any] = ()) -> Any:
        chain = ["x", *(f"{name}{i}" for i in range(len(operators)))]
        made = [node(op, [a], [b]) for op, a, b in zip(operators, chain, chain[1:], strict=False)]
        return helper.make_graph(
            [*made, *nodes], name, [], [value(nodes[0].output[0] if nodes else chain[-1], ("n", 8))]
        )

    inner = node(
        "If",
        ["second"],
        ["inner"],
        then_branch=side("a", "Exp", "Tanh", "Abs"),
        else_branch=side("b", "Sigmoid", "Neg"),
    )
    outer = node(
        "If", ["first"], ["y"], then_branch=side("c", nodes=[inner]), else_branch=side("d", "Relu", "Exp")
    )
    flags = [value(name, (), TensorProto.BOOL) for name in ("first", "second")]
    return imported([outer], [value("x", ("n", 8)), *flags], [value("y", ("n", 8))])
