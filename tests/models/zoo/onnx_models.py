"""Models that come in through ONNX."""

from __future__ import annotations

import tvm

from tests.models.zoo.registry import model


@model(needs="onnx")
def onnx_mlp() -> tvm.IRModule:
    """Gemm, ReLU, Gemm over any batch."""
    from tests.models.imported.onnx_models import imported, node, noise, value

    nodes = [
        node("MatMul", ["x", "w1"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("MatMul", ["b", "w2"], ["y"]),
    ]
    constants = {"w1": noise(16, 32), "w2": noise(32, 4)}
    return imported(nodes, [value("x", ("batch", 16))], [value("y", ("batch", 4))], constants)


@model(needs="onnx")
def onnx_cnn() -> tvm.IRModule:
    """Convolution, pooling and a flattening over any batch."""
    from tests.models.imported.onnx_models import imported, node, noise, value

    nodes = [
        node("Conv", ["x", "k"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["c"], ["y"]),
    ]
    outputs = [value("y", ("batch", 64))]
    return imported(nodes, [value("x", ("batch", 3, 8, 8))], outputs, {"k": noise(4, 3, 3, 3)})
