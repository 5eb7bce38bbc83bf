"""Models that come in through ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

from tests.models.zoo.registry import model


def _import(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, np.ndarray]
) -> tvm.IRModule:
    import onnx
    from tvm.relax.frontend.onnx import from_onnx

    constants = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = onnx.helper.make_graph(nodes, "model", inputs, outputs, constants)
    opset = onnx.helper.make_opsetid("", 17)
    return from_onnx(onnx.helper.make_model(graph, opset_imports=[opset]), keep_params_in_input=False)


@model(needs="onnx")
def onnx_mlp() -> tvm.IRModule:
    """Gemm, ReLU, Gemm over any batch."""
    from onnx import TensorProto, helper

    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((16, 32), dtype=np.float32),
        "w2": rng.standard_normal((32, 4), dtype=np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    return _import(nodes, [x], [y], weights)


@model(needs="onnx")
def onnx_cnn() -> tvm.IRModule:
    """Convolution, pooling and a flattening over any batch."""
    from onnx import TensorProto, helper

    rng = np.random.default_rng(0)
    weights = {
        "k": rng.standard_normal((4, 3, 3, 3), dtype=np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["c"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])
    return _import(nodes, [x], [y], weights)
