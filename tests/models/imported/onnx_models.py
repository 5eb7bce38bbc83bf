"""Networks that come through ONNX; `regenerate` imports them.  Needs onnx."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import onnx
import tvm
from onnx import helper, numpy_helper
from tvm.relax.frontend.onnx import from_onnx

__all__ = ["ONNX_MODELS", "imported", "noise"]


def imported(text: str, **constants: np.ndarray) -> tvm.IRModule:
    """The module of a graph in ONNX's own notation: inputs => outputs, then its nodes."""
    graph = onnx.parser.parse_graph(f"model {text}")
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(made)
    return from_onnx(made, keep_params_in_input=False)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


_TEXTS: Mapping[str, tuple[str, Mapping[str, np.ndarray]]] = {
    # batch and length with names of their own
    "attention": (
        """(float[batch, length, 16] x) => (float[batch, length, 16] y) {
            q = MatMul(x, wq)
            k = MatMul(x, wk)
            v = MatMul(x, wv)
            kt = Transpose<perm = [0, 2, 1]>(k)
            scores = MatMul(q, kt)
            weights = Softmax<axis = -1>(scores)
            y = MatMul(weights, v)
        }""",
        {name: noise(16, 16) for name in ("wq", "wk", "wv")},
    ),
    # convolutions with a skip connection, pooling, a head; over the batch
    "residual_image": (
        """(float[batch, 3, 16, 16] x) => (float[batch, 5] y) {
            a = Conv<pads = [1, 1, 1, 1]>(x, k1)
            b = Relu(a)
            c = Conv<pads = [1, 1, 1, 1]>(b, k2)
            d = Add(a, c)
            e = Relu(d)
            f = GlobalAveragePool(e)
            g = Flatten(f)
            y = Gemm<transB = 1>(g, w)
        }""",
        {"k1": noise(8, 3, 3, 3), "k2": noise(8, 8, 3, 3), "w": noise(5, 8)},
    ),
    # branches of different width, joined by Concat; over the batch
    "inception": (
        """(float[batch, 3, 12, 12] x) => (float[batch, 13, 6, 6] y) {
            a = Conv(x, k1)
            b = Conv<pads = [1, 1, 1, 1]>(x, k3)
            c = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)
            d = Concat<axis = 1>(a, b, c)
            y = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(d)
        }""",
        {"k1": noise(4, 3, 1, 1), "k3": noise(6, 3, 3, 3)},
    ),
    # an If on a value
    "branch": (
        """(float[n, 4] x, bool flag) => (float[n, 4] y) {
            y = If(flag) <
                then_branch = then () => (float[n, 4] then_out) { t = Mul(x, two) then_out = Exp(t) },
                else_branch = otherwise () => (float[n, 4] else_out) { r = Relu(x) else_out = Add(r, two) }
            >
        }""",
        {"two": np.array([2], dtype=np.float32)},
    ),
    "topk": (
        """(float[n, 10] x) => (float[n, 3] values, int64[n, 3] indices) {
            values, indices = TopK<axis = 1>(x, k)
        }""",
        {"k": _ints(3)},
    ),
    "cumsum": (
        "(float[n, 6] x) => (float[n, 6] y) { c = CumSum(x, axis) y = Tanh(c) }",
        {"axis": np.array(1, dtype=np.int64)},
    ),
    "scatter": (
        """(float[n, 8] x, int64[n, 3] i, float[n, 3] u) => (float[n, 8] y) {
            y = ScatterElements<axis = 1>(x, i, u)
        }""",
        {},
    ),
    "gather": (
        "(int64[n, m] i) => (float[n, m, 8] y) { g = Gather(table, i) y = Relu(g) }",
        {"table": noise(20, 8)},
    ),
    # Split, Slice with steps, Concat, Pad
    "slices": (
        """(float[n, 8] x) => (float[n, 15] y) {
            a = Slice(x, starts, ends, axes, steps)
            b = Pad(a, pads)
            c, d = Split<axis = 1>(x)
            e = Concat<axis = 1>(b, c, d)
            y = Sigmoid(e)
        }""",
        {
            "starts": _ints(1),
            "ends": _ints(8),
            "axes": _ints(1),
            "steps": _ints(2),
            "pads": _ints(0, 1, 0, 2),
        },
    ),
    "resize": (
        """(float[n, 2, 6, 6] x) => (float[n, 2, 12, 12] y) {
            a = Resize<mode = "linear">(x, , scales)
            y = Relu(a)
        }""",
        {"scales": np.array([1, 1, 2, 2], dtype=np.float32)},
    ),
    # a result whose size depends on data, beside ordinary ones
    "nonzero": (
        """(float[n, 6] x) => (int64[2, k] i, float[n, 6] y) {
            i = NonZero(x)
            e = Exp(x)
            y = Softmax<axis = -1>(e)
        }""",
        {},
    ),
    "transposed_convolution": (
        """(float[n, 3, 5, 5] x) => (float[n, 4, 10, 10] y) {
            a = ConvTranspose<strides = [2, 2]>(x, k)
            y = InstanceNormalization(a, scale, bias)
        }""",
        {"k": noise(3, 4, 2, 2), "scale": noise(4), "bias": noise(4)},
    ),
    # a product over two lengths, reduced both ways
    "two_lengths": (
        """(float[rows, 8] a, float[columns, 8] b) => (float[rows, columns] y) {
            bt = Transpose<perm = [1, 0]>(b)
            c = MatMul(a, bt)
            rows = ReduceMax<axes = [1], keepdims = 1>(c)
            d = Sub(c, rows)
            y = Exp(d)
        }""",
        {},
    ),
    "einsum": (
        """(float[batch, rows, 8] a, float[batch, columns, 8] b) => (float[batch, rows, columns] y) {
            c = Einsum<equation = "bik,bjk->bij">(a, b)
            y = Relu(c)
        }""",
        {},
    ),
    # an If in an If; each branch makes tensors of its own
    "nested_branch": (
        """(float[n, 8] x, bool first, bool second) => (float[n, 8] y) {
            y = If(first) <
                then_branch = c () => (float[n, 8] inner) {
                    inner = If(second) <
                        then_branch = a () => (float[n, 8] a2) { a0 = Exp(x) a1 = Tanh(a0) a2 = Abs(a1) },
                        else_branch = b () => (float[n, 8] b1) { b0 = Sigmoid(x) b1 = Neg(b0) }
                    >
                },
                else_branch = d () => (float[n, 8] d1) { d0 = Relu(x) d1 = Exp(d0) }
            >
        }""",
        {},
    ),
}
ONNX_MODELS: Mapping[str, Callable[[], tvm.IRModule]] = {
    name: partial(imported, text, **constants) for name, (text, constants) in _TEXTS.items()
}
