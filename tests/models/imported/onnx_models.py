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


def _value(name: str, dims: Dims, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(dims))


def _import(
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


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


@_model
def attention() -> tvm.IRModule:
    """Batch and length with names of their own."""
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"]),
        helper.make_node("MatMul", ["x", "wk"], ["k"]),
        helper.make_node("MatMul", ["x", "wv"], ["v"]),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"]),
    ]
    weights = {name: _weights(16, 16) for name in ("wq", "wk", "wv")}
    dims = ("batch", "length", 16)
    return _import(nodes, [_value("x", dims)], [_value("y", dims)], weights)


@_model
def residual_image() -> tvm.IRModule:
    """Convolutions with a skip connection, pooling, a head; over the batch."""
    nodes = [
        helper.make_node("Conv", ["x", "k1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "k2"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["a", "c"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("Gemm", ["g", "w"], ["y"], transB=1),
    ]
    weights = {"k1": _weights(8, 3, 3, 3), "k2": _weights(8, 8, 3, 3), "w": _weights(5, 8)}
    return _import(nodes, [_value("x", ("batch", 3, 16, 16))], [_value("y", ("batch", 5))], weights)


@_model
def inception() -> tvm.IRModule:
    """Branches of different width, joined by Concat; over the batch."""
    nodes = [
        helper.make_node("Conv", ["x", "k1"], ["a"]),
        helper.make_node("Conv", ["x", "k3"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["x"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["a", "b", "c"], ["d"], axis=1),
        helper.make_node("AveragePool", ["d"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    weights = {"k1": _weights(4, 3, 1, 1), "k3": _weights(6, 3, 3, 3)}
    return _import(nodes, [_value("x", ("batch", 3, 12, 12))], [_value("y", ("batch", 13, 6, 6))], weights)


@_model
def branch() -> tvm.IRModule:
    """An If on a value."""
    then = helper.make_graph(
        [helper.make_node("Mul", ["x", "two"], ["t"]), helper.make_node("Exp", ["t"], ["then_out"])],
        "then", [], [_value("then_out", ("n", 4))],
    )  # fmt: skip
    otherwise = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Add", ["r", "two"], ["else_out"])],
        "else", [], [_value("else_out", ("n", 4))],
    )  # fmt: skip
    nodes = [helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=otherwise)]
    inputs = [_value("x", ("n", 4)), _value("flag", (), TensorProto.BOOL)]
    return _import(nodes, inputs, [_value("y", ("n", 4))], {"two": np.array([2], dtype=np.float32)})


@_model
def topk() -> tvm.IRModule:
    nodes = [helper.make_node("TopK", ["x", "k"], ["values", "indices"], axis=1)]
    outputs = [_value("values", ("n", 3)), _value("indices", ("n", 3), TensorProto.INT64)]
    return _import(nodes, [_value("x", ("n", 10))], outputs, {"k": np.array([3], dtype=np.int64)})


@_model
def cumsum() -> tvm.IRModule:
    nodes = [helper.make_node("CumSum", ["x", "axis"], ["c"]), helper.make_node("Tanh", ["c"], ["y"])]
    axis = {"axis": np.array(1, dtype=np.int64)}
    return _import(nodes, [_value("x", ("n", 6))], [_value("y", ("n", 6))], axis)


@_model
def scatter() -> tvm.IRModule:
    nodes = [helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=1)]
    inputs = [_value("x", ("n", 8)), _value("i", ("n", 3), TensorProto.INT64), _value("u", ("n", 3))]
    return _import(nodes, inputs, [_value("y", ("n", 8))])


@_model
def gather() -> tvm.IRModule:
    nodes = [helper.make_node("Gather", ["table", "i"], ["g"]), helper.make_node("Relu", ["g"], ["y"])]
    inputs = [_value("i", ("n", "m"), TensorProto.INT64)]
    return _import(nodes, inputs, [_value("y", ("n", "m", 8))], {"table": _weights(20, 8)})


@_model
def slices() -> tvm.IRModule:
    """Split, Slice with steps, Concat, Pad."""
    constants = {
        "starts": np.array([1], dtype=np.int64), "ends": np.array([8], dtype=np.int64),
        "axes": np.array([1], dtype=np.int64), "steps": np.array([2], dtype=np.int64),
        "pads": np.array([0, 1, 0, 2], dtype=np.int64),
    }  # fmt: skip
    nodes = [
        helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["a"]),
        helper.make_node("Pad", ["a", "pads"], ["b"]),
        helper.make_node("Split", ["x"], ["c", "d"], axis=1),
        helper.make_node("Concat", ["b", "c", "d"], ["e"], axis=1),
        helper.make_node("Sigmoid", ["e"], ["y"]),
    ]
    return _import(nodes, [_value("x", ("n", 8))], [_value("y", ("n", 15))], constants)


@_model
def resize() -> tvm.IRModule:
    constants = {"scales": np.array([1, 1, 2, 2], dtype=np.float32)}
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["a"], mode="linear"),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    return _import(nodes, [_value("x", ("n", 2, 6, 6))], [_value("y", ("n", 2, 12, 12))], constants)


@_model
def nonzero() -> tvm.IRModule:
    """A result whose size depends on data, beside ordinary ones."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["i"]),
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Softmax", ["e"], ["y"], axis=-1),
    ]
    outputs = [_value("i", (2, "k"), TensorProto.INT64), _value("y", ("n", 6))]
    return _import(nodes, [_value("x", ("n", 6))], outputs)


@_model
def transposed_convolution() -> tvm.IRModule:
    nodes = [
        helper.make_node("ConvTranspose", ["x", "k"], ["a"], strides=[2, 2]),
        helper.make_node("InstanceNormalization", ["a", "scale", "bias"], ["y"]),
    ]
    weights = {"k": _weights(3, 4, 2, 2), "scale": _weights(4), "bias": _weights(4)}
    return _import(nodes, [_value("x", ("n", 3, 5, 5))], [_value("y", ("n", 4, 10, 10))], weights)


@_model
def two_lengths() -> tvm.IRModule:
    """A product over two lengths, reduced both ways."""
    nodes = [
        helper.make_node("Transpose", ["b"], ["bt"], perm=[1, 0]),
        helper.make_node("MatMul", ["a", "bt"], ["c"]),
        helper.make_node("ReduceMax", ["c"], ["rows"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["c", "rows"], ["d"]),
        helper.make_node("Exp", ["d"], ["y"]),
    ]
    inputs = [_value("a", ("rows", 8)), _value("b", ("columns", 8))]
    return _import(nodes, inputs, [_value("y", ("rows", "columns"))])


@_model
def einsum() -> tvm.IRModule:
    nodes = [
        helper.make_node("Einsum", ["a", "b"], ["c"], equation="bik,bjk->bij"),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    inputs = [_value("a", ("batch", "rows", 8)), _value("b", ("batch", "columns", 8))]
    return _import(nodes, inputs, [_value("y", ("batch", "rows", "columns"))])


@_model
def nested_branch() -> tvm.IRModule:
    """An If in an If; each branch makes tensors of its own."""

    def side(name: str, *operators: str, nodes: Sequence[Any] = ()) -> Any:
        chain = ["x", *(f"{name}{i}" for i in range(len(operators)))]
        made = [helper.make_node(op, [a], [b]) for op, a, b in zip(operators, chain, chain[1:], strict=False)]
        return helper.make_graph(
            [*made, *nodes], name, [], [_value(nodes[0].output[0] if nodes else chain[-1], ("n", 8))]
        )

    inner = helper.make_node(
        "If",
        ["second"],
        ["inner"],
        then_branch=side("a", "Exp", "Tanh", "Abs"),
        else_branch=side("b", "Sigmoid", "Neg"),
    )
    outer = helper.make_node(
        "If", ["first"], ["y"], then_branch=side("c", nodes=[inner]), else_branch=side("d", "Relu", "Exp")
    )
    flags = [_value(name, (), TensorProto.BOOL) for name in ("first", "second")]
    return _import([outer], [_value("x", ("n", 8)), *flags], [_value("y", ("n", 8))])
