"""Calls of Relax operators with random shapes, static and symbolic, and the kernels made of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.relax import op

__all__ = ["legalised", "random_call"]

Extent = Any
Draw = random.Random


class _Case:
    """What a random call is made of: symbols, tensors and attributes, all drawn from one generator."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.symbols = {name: tvm.tirx.Var(name, "int64") for name in ("n", "m", "k")}
        self.params: list[Any] = []

    def extent(self, *, least: int = 1) -> Extent:
        if self.draw.random() < 0.55:
            return self.draw.choice(list(self.symbols.values()))
        return self.draw.randrange(least, max(least, 7) + 1)

    def shape(self, rank: int | None = None) -> list[Extent]:
        return [self.extent() for _ in range(self.draw.randrange(1, 5) if rank is None else rank)]

    def tensor(self, shape: list[Extent], dtype: str = "float32") -> Any:
        ty = relax.TensorType(shape, dtype)
        var = relax.Var(f"x{len(self.params)}", ty)
        self.params.append(var)
        return var

    def pick(self, *values: Any) -> Any:
        return self.draw.choice(values)

    def axis(self, rank: int) -> int:
        return self.draw.randrange(-rank, rank)


def _binary(c: _Case) -> Any:
    f = c.pick(op.add, op.multiply, op.subtract, op.divide, op.maximum, op.power)
    left = c.shape()
    right = [e if c.draw.random() < 0.7 else 1 for e in left[c.draw.randrange(len(left)) :]]
    return f(c.tensor(left), c.tensor(right))


def _group_norm(c: _Case) -> Any:
    groups = c.pick(1, 2, 3)
    channels = groups * c.pick(1, 2)
    shape = [c.extent(), channels, c.extent(), c.extent()]
    return op.nn.group_norm(
        c.tensor(shape), c.tensor([channels]), c.tensor([channels]), groups, channel_axis=1, axes=[2, 3]
    )


def _batch_norm(c: _Case) -> Any:
    channels = c.extent()
    weights = [c.tensor([channels]) for _ in range(4)]
    return op.nn.batch_norm(c.tensor([c.extent(), channels, c.extent(), c.extent()]), *weights, axis=1)


def _matmul(c: _Case) -> Any:
    a, b, d = c.extent(), c.extent(), c.extent()
    batch = [c.extent() for _ in range(c.draw.randrange(0, 3))]
    other = batch if c.draw.random() < 0.5 else []
    return op.matmul(c.tensor([*batch, a, b]), c.tensor([*other, b, d]))


def _conv2d(c: _Case) -> Any:
    groups = c.pick(1, 1, 2)
    channels, out = groups * c.pick(1, 2, 3), groups * c.pick(1, 2)
    kernel = [c.draw.randrange(1, 4) for _ in range(2)]
    height, width = c.extent(least=5), c.extent(least=5)
    return op.nn.conv2d(
        c.tensor([c.extent(), channels, height, width]),
        c.tensor([out, channels // groups, *kernel]),
        strides=c.pick(1, 2, 3),
        padding=c.pick(0, 1, 2, (1, 2), (0, 1, 2, 1)),
        dilation=c.pick(1, 1, 2),
        groups=groups,
    )


def _conv1d(c: _Case) -> Any:
    channels = c.pick(1, 2, 3)
    return op.nn.conv1d(
        c.tensor([c.extent(), channels, c.extent(least=5)]),
        c.tensor([2, channels, c.draw.randrange(1, 4)]),
        strides=c.pick(1, 2),
        padding=c.pick(0, 1, 2),
        dilation=c.pick(1, 2),
    )


def _conv2d_transpose(c: _Case) -> Any:
    channels = c.pick(1, 2, 3)
    stride = c.pick(1, 2, 3)
    return op.nn.conv2d_transpose(
        c.tensor([c.extent(), channels, c.extent(least=3), c.extent(least=3)]),
        c.tensor([channels, 2, c.draw.randrange(1, 4), c.draw.randrange(1, 4)]),
        strides=stride,
        padding=c.pick(0, 1),
        output_padding=c.pick(0, stride - 1),
    )


def _pool(c: _Case) -> Any:
    f = c.pick(op.nn.max_pool2d, op.nn.avg_pool2d)
    size = c.draw.randrange(1, 4)
    return f(
        c.tensor([c.extent(), c.extent(), c.extent(least=4), c.extent(least=4)]),
        (size, c.draw.randrange(1, 4)),
        strides=c.pick(1, 2, 3),
        padding=c.pick(0, 1) if size > 1 else 0,
        ceil_mode=c.pick(True, False),
    )


def _resize(c: _Case) -> Any:
    x = c.tensor([c.extent(), c.extent(), c.draw.randrange(1, 6), c.draw.randrange(1, 6)])
    mode = c.pick("half_pixel", "align_corners", "asymmetric")
    size = relax.ShapeExpr([c.draw.randrange(1, 9), c.draw.randrange(1, 9)])
    return op.image.resize2d(
        x, size, method=c.pick("nearest_neighbor", "linear", "cubic"), coordinate_transformation_mode=mode
    )


def _reshape(c: _Case) -> Any:
    shape = c.shape(c.draw.randrange(1, 5))
    x = c.tensor(shape)
    way = c.draw.randrange(3)
    if way == 0 or len(shape) == 1:
        return op.reshape(x, (-1,))
    if way == 1:
        return op.reshape(x, [shape[0] * shape[1], *shape[2:]])
    return op.reshape(x, [*reversed(shape)])


def _split_reshape(c: _Case) -> Any:
    head, inner = c.pick(1, 2, 3, 4), c.pick(1, 2, 5)
    lead = c.shape(c.draw.randrange(1, 3))
    return op.reshape(c.tensor([*lead, head * inner]), [*lead, head, inner])


def _transpose(c: _Case) -> Any:
    shape = c.shape()
    axes = list(range(len(shape)))
    c.draw.shuffle(axes)
    return op.permute_dims(c.tensor(shape), axes)


def _concat(c: _Case) -> Any:
    shape = c.shape()
    axis = c.draw.randrange(len(shape))
    parts = []
    for _ in range(c.draw.randrange(2, 5)):
        parts.append(c.tensor([c.extent() if i == axis else e for i, e in enumerate(shape)]))
    return op.concat(relax.Tuple(parts), axis=axis)


def _split(c: _Case) -> Any:
    parts = c.pick(2, 3, 4)
    shape = c.shape()
    axis = c.draw.randrange(len(shape))
    shape[axis] = parts * c.pick(1, 2) if c.draw.random() < 0.6 else shape[axis]
    static = isinstance(shape[axis], int)
    where = [c.draw.randrange(1, 3), 4] if c.draw.random() < 0.4 and static and shape[axis] > 4 else parts
    return op.split(c.tensor(shape), where, axis=axis)


def _slice(c: _Case) -> Any:
    shape = c.shape()
    axis = c.draw.randrange(len(shape))
    begin, end, step = c.draw.randrange(-8, 8), c.draw.randrange(-8, 12), c.pick(1, 1, 2, 3, -1, -2)
    return op.strided_slice(c.tensor(shape), [axis], [begin], [end], [step])


def _symbolic_slice(c: _Case) -> Any:
    n = c.symbols["n"]
    rest = c.shape(c.draw.randrange(0, 3))
    begin, end = c.pick((0, n), (n, n + 2), (1, n), (n - 1, n), (n, 2 * n), (0, n // 2))
    return op.strided_slice(c.tensor([2 * n + 3, *rest]), [0], [begin], [end])


def _take(c: _Case) -> Any:
    shape = c.shape()
    rows = c.tensor(c.shape(c.draw.randrange(1, 3)), "int64")
    return op.take(c.tensor(shape), rows, axis=c.axis(len(shape)), mode=c.pick("fast", "wrap", "clip"))


def _squeeze(c: _Case) -> Any:
    shape = c.shape()
    at = c.draw.randrange(len(shape) + 1)
    return op.squeeze(c.tensor([*shape[:at], 1, *shape[at:]]), [at])


def _one_hot(c: _Case) -> Any:
    shape = c.shape(c.draw.randrange(1, 3))
    one, zero = (tvm.tirx.FloatImm("float32", v) for v in (1.0, 0.0))
    return op.one_hot(c.tensor(shape, "int64"), one, zero, c.pick(3, 5), c.draw.randrange(len(shape)))


def _attention(c: _Case) -> Any:
    b, s, h, d = c.extent(), c.extent(), c.pick(1, 2), c.pick(2, 4)
    q, k, v = (c.tensor([b, s, h, d]) for _ in range(3))
    return op.nn.attention(q, k, v, causal_mask=c.pick(None, "TopLeft", "BottomRight"))


_SHAPED: tuple[Callable[[_Case, list[Extent]], Any], ...] = (
    lambda c, s: c.pick(op.exp, op.nn.relu, op.sqrt, op.sigmoid, op.tanh)(c.tensor(s)),
    lambda c, s: c.pick(op.nn.gelu, op.nn.silu, op.negative, op.flatten)(c.tensor(s)),
    lambda c, s: c.pick(op.greater, op.equal, op.less_equal)(c.tensor(s), c.tensor(s)),
    lambda c, s: op.where(c.tensor(s, "bool"), c.tensor(s), c.tensor(s)),
    lambda c, s: c.pick(op.sum, op.max, op.min, op.mean, op.prod, op.std, op.variance)(
        c.tensor(s), axis=c.pick(None, c.axis(len(s)), [c.axis(len(s))]), keepdims=c.pick(True, False)
    ),
    lambda c, s: c.pick(op.argmax, op.argmin)(c.tensor(s), axis=c.axis(len(s)), keepdims=c.pick(True, False)),
    lambda c, s: c.pick(op.nn.softmax, op.nn.log_softmax)(c.tensor(s), axis=c.axis(len(s))),
    lambda c, s: op.nn.layer_norm(c.tensor([8, *s]), *(c.tensor(s[-1:]) for _ in range(2)), axes=-1),
    lambda c, s: op.nn.rms_norm(c.tensor([c.extent(), *s]), c.tensor(s[-1:]), axes=-1),
    lambda c, s: op.stack([c.tensor(s) for _ in range(3)], axis=c.draw.randrange(len(s) + 1)),
    lambda c, s: op.nn.pad(
        c.tensor(s),
        [c.draw.randrange(3) for _ in (*s, *s)],
        c.pick("constant", "reflect", "edge", "circular"),
    ),
    lambda c, s: op.gather_elements(c.tensor(s), c.tensor(s, "int64"), axis=c.draw.randrange(len(s))),
    lambda c, s: op.scatter_elements(
        c.tensor(s), c.tensor(s, "int64"), c.tensor(s), axis=c.draw.randrange(len(s))
    ),
    lambda c, s: c.pick(op.cumsum, op.cumprod)(c.tensor(s), axis=c.pick(None, c.draw.randrange(len(s)))),
    lambda c, s: c.pick(op.sort, op.argsort)(c.tensor(s), axis=c.draw.randrange(len(s))),
    lambda c, s: op.topk(c.tensor(s), k=c.pick(1, 2), axis=-1),
    lambda c, s: op.flip(c.tensor(s), axis=c.axis(len(s))),
    lambda c, s: op.tile(c.tensor(s), [c.draw.randrange(1, 4) for _ in s]),
    lambda c, s: op.repeat(c.tensor(s), c.draw.randrange(1, 4), axis=c.axis(len(s))),
    lambda c, s: op.broadcast_to(c.tensor([e if c.draw.random() < 0.5 else 1 for e in s]), s),
    lambda c, s: op.expand_dims(c.tensor(s), c.draw.randrange(len(s) + 1)),
    lambda c, s: c.pick(op.triu, op.tril)(c.tensor([5, *s[:2]]), c.draw.randrange(-2, 3)),
    lambda c, s: op.meshgrid(relax.Tuple([c.tensor(s[:1]), c.tensor(s[-1:])]), indexing=c.pick("ij", "xy")),
    lambda c, s: op.layout_transform(
        c.tensor([*s[:1], 3, c.pick(4, 8)]), lambda i, j, k: (k // 4, i, j, k % 4)
    ),
    lambda c, _: op.layout_transform(c.tensor([c.pick(5, 6, 7)]), lambda i: (i // 4, i % 4), pad_value=0.0),
    lambda c, s: op.nn.adaptive_avg_pool2d(c.tensor([2, *s[:1], 7, 5]), c.pick((1, 1), (2, 3), (7, 7))),
)
_OTHERS: tuple[Callable[[_Case], Any], ...] = (
    *(_binary, _group_norm, _batch_norm, _matmul, _conv2d, _conv2d, _conv1d, _conv2d_transpose, _pool, _pool),
    *(_resize, _reshape, _reshape, _split_reshape, _transpose, _concat, _split, _slice, _slice),
    *(_symbolic_slice, _take, _squeeze, _one_hot, _attention),
)


def random_call(seed: int) -> tvm.IRModule | None:
    """A module with one call of an operator, drawn by `seed`; None where TVM refuses what was drawn."""
    draw = random.Random(seed)
    case = _Case(draw)
    kind = seed % (len(_SHAPED) + len(_OTHERS))
    builder = relax.BlockBuilder()
    try:
        shaped = kind < len(_SHAPED)
        call = _SHAPED[kind](case, case.shape()) if shaped else _OTHERS[kind - len(_SHAPED)](case)
        with builder.function("main", case.params):
            with builder.dataflow():
                found = builder.emit_output(builder.emit(call))
            builder.emit_func_output(found)
        return builder.get()
    except Exception:
        return None


def legalised(module: tvm.IRModule) -> tvm.IRModule | None:
    """The module with kernels in place of operators; None where TVM cannot make them."""
    passes = [
        relax.backend.DispatchSortScan(),
        relax.transform.LegalizeOps(),
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
    ]
    try:
        with tvm.target.Target("llvm"):
            return tvm.transform.Sequential(passes)(module)
    except Exception:
        return None
