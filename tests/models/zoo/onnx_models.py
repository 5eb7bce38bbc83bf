"""Models that come in through ONNX."""

from __future__ import annotations

import tvm

from tests.models.zoo.registry import model


@model(needs="onnx")
def onnx_mlp() -> tvm.IRModule:
    """Gemm, ReLU, Gemm over any batch."""
    from tests.models.imported.onnx_models import imported, noise

    text = "(float[batch, 16] x) => (float[batch, 4] y) { a = MatMul(x, w1) b = Relu(a) y = MatMul(b, w2) }"
    return imported(text, w1=noise(16, 32), w2=noise(32, 4))


@model(needs="onnx")
def onnx_cnn() -> tvm.IRModule:
    """Convolution, pooling and a flattening over any batch."""
    from tests.models.imported.onnx_models import imported, noise

    text = """(float[batch, 3, 8, 8] x) => (float[batch, 64] y) {
        a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, k)
        b = Relu(a)
        c = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b)
        y = Flatten(c)
    }"""
    return imported(text, k=noise(4, 3, 3, 3))
