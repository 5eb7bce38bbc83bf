"""Random calls of Relax operators, each a module of its own: what TOPI makes of it is one kernel or a few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, TypeAlias

import tvm
from tvm import relax, tirx
from tvm.relax import op

Shape: TypeAlias = list[Any]

FLOATS = ("float32", "float32", "float16", "float64")
NUMBERS = (*FLOATS, "int32", "int64", "int8", "uint8")


class RandomCall(NamedTuple):
    """A module whose `main` calls one operator, and values of its symbols."""

    name: str
    module: tvm.IRModule
    binding: Mapping[str, int]


class _Draw:
    """Draws the arguments of one call: shapes of constants and symbols, and parameters of these shapes."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.binding: dict[str, int] = {}
        self.parameters: list[Any] = []
        self.symbols: dict[str, Any] = {}
        self.dtype = random.choice(NUMBERS)

    def extent(self, low: int = 1, high: int = 40) -> Any:
        """A constant, or a symbol, in half of the cases each."""
        value = self.random.randint(low, high)
        if self.random.random() < 0.5:
            return value
        name = f"n{len(self.symbols)}"
        self.binding[name] = value
        self.symbols[name] = tirx.Var(name, "int64")
        return self.symbols[name]

    def shape(self, rank: int | None = None) -> Shape:
        return [self.extent() for _ in range(rank or self.random.randint(1, 4))]

    def axis(self, shape: Shape) -> int:
        return self.random.randrange(len(shape))

    def tensor(self, shape: Sequence[Any], dtype: str | None = None) -> Any:
        name = f"p{len(self.parameters)}"
        self.parameters.append(relax.Var(name, relax.TensorType(list(shape), dtype or self.dtype)))
        return self.parameters[-1]

    def real(self) -> None:
        self.dtype = self.random.choice(FLOATS)


def random_calls(seed: int) -> Iterator[RandomCall]:
    """Calls without end: those that TVM has no objection to when they are written down."""
    random = Random(seed)
    names = sorted(_CALLS)
    while True:
        name = random.choice(names)
        draw = _Draw(random)
        try:
            module = _module(_CALLS[name](draw), draw)
        except Exception:
            continue
        yield RandomCall(name, module, draw.binding)


def _module(call: Any, draw: _Draw) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    unbound = [s for n, s in draw.symbols.items()]
    with builder.function("main", [*draw.parameters, relax.Var("s", relax.ShapeType(unbound))]):
        with builder.dataflow():
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return builder.get()


def _reduction(name: str) -> Callable[[_Draw], Any]:
    def call(draw: _Draw) -> Any:
        shape = draw.shape()
        axes = draw.random.sample(range(len(shape)), draw.random.randint(1, len(shape)))
        return getattr(op, name)(draw.tensor(shape), axes, draw.random.random() < 0.5)

    return call


def _along(name: str) -> Callable[[_Draw], Any]:
    def call(draw: _Draw) -> Any:
        shape = draw.shape()
        return getattr(op, name)(draw.tensor(shape), axis=draw.axis(shape))

    return call


def _softmax(name: str) -> Callable[[_Draw], Any]:
    def call(draw: _Draw) -> Any:
        draw.real()
        shape = draw.shape()
        return getattr(op.nn, name)(draw.tensor(shape), axis=draw.axis(shape))

    return call


def _convolution(rank: int, *, transposed: bool = False) -> Callable[[_Draw], Any]:
    def call(draw: _Draw) -> Any:
        draw.real()
        groups = draw.random.choice((1, 1, 2))
        inside, outside = (groups * draw.random.randint(1, 4) for _ in range(2))
        window = [draw.random.randint(1, 4) for _ in range(rank)]
        data = [draw.extent(1, 3), inside, *(draw.extent(8, 20) for _ in range(rank))]
        weight = [inside, outside // groups] if transposed else [outside, inside // groups]
        named: dict[str, Any] = {
            "strides": draw.random.randint(1, 3),
            "padding": draw.random.randint(0, 2),
            "dilation": draw.random.randint(1, 2),
            "groups": groups,
        }
        name = f"conv{rank}d{'_transpose' if transposed else ''}"
        return getattr(op.nn, name)(draw.tensor(data), draw.tensor([*weight, *window]), **named)

    return call


def _pool(name: str) -> Callable[[_Draw], Any]:
    def call(draw: _Draw) -> Any:
        draw.real()
        window, padding = draw.random.randint(2, 3), draw.random.randint(0, 1)
        data = draw.tensor([draw.extent(1, 3), draw.extent(1, 5), draw.extent(8, 30), draw.extent(8, 30)])
        return getattr(op.nn, name)(
            data,
            (window, window),
            draw.random.randint(1, 3),
            (padding,) * 4,
            ceil_mode=draw.random.random() < 0.5,
        )

    return call


def _norm(name: str) -> Callable[[_Draw], Any]:
    def call(draw: _Draw) -> Any:
        draw.dtype = draw.random.choice(FLOATS[1:3])
        shape = draw.shape(draw.random.randint(2, 4))
        weights = [draw.tensor(shape[-1:])] * (2 if name == "layer_norm" else 1)
        return getattr(op.nn, name)(draw.tensor(shape), *weights, axes=[-1])

    return call


def _group_norm(draw: _Draw) -> Any:
    draw.dtype = draw.random.choice(FLOATS[1:3])
    data = draw.tensor([draw.extent(1, 3), 8, draw.extent(), draw.extent()])
    scale = draw.tensor([8])
    return op.nn.group_norm(data, scale, scale, 4, 1, [2, 3])


def _matmul(draw: _Draw) -> Any:
    shape, columns = draw.shape(draw.random.randint(2, 4)), draw.extent()
    return op.matmul(draw.tensor(shape), draw.tensor([*shape[:-2], shape[-1], columns]))


def _attention(draw: _Draw) -> Any:
    draw.real()
    batch, heads, width = draw.extent(1, 3), draw.random.randint(1, 4), draw.random.randint(1, 8)
    few, many = draw.extent(), draw.extent()
    query, key = draw.tensor([batch, few, heads, width]), draw.tensor([batch, many, heads, width])
    return op.nn.attention(query, key, key)


def _concat(draw: _Draw) -> Any:
    shape = draw.shape()
    axis = draw.axis(shape)
    parts = [[*shape[:axis], draw.extent(), *shape[axis + 1 :]] for _ in range(draw.random.randint(1, 3))]
    return op.concat([draw.tensor(part) for part in parts], axis)


def _top(draw: _Draw) -> Any:
    shape = [*draw.shape(draw.random.randint(1, 3)), draw.extent(8, 40)]
    return op.topk(draw.tensor(shape), draw.random.randint(1, 8), axis=-1)


def _resize(draw: _Draw) -> Any:
    draw.real()
    data = draw.tensor([1, draw.extent(1, 4), draw.extent(4, 20), draw.extent(4, 20)])
    size = (draw.random.randint(1, 30), draw.random.randint(1, 30))
    method = draw.random.choice(("nearest_neighbor", "linear", "cubic"))
    return op.image.resize2d(data, size, method=method)


def _einsum(draw: _Draw) -> Any:
    draw.real()
    i, j, k = draw.extent(), draw.extent(), draw.extent()
    return op.einsum(
        (draw.tensor([i, j]), draw.tensor([j, k])), draw.random.choice(("ij,jk->ik", "ij,jk->ki"))
    )


def _loss(draw: _Draw) -> Any:
    draw.real()
    rows, classes = draw.extent(), draw.extent(2, 20)
    reduction = draw.random.choice(("mean", "sum", "none"))
    return op.nn.nll_loss(
        draw.tensor([rows, classes]), draw.tensor([rows], "int64"), draw.tensor([classes]), reduction
    )


_CALLS: Mapping[str, Callable[[_Draw], Any]] = {
    **{n: _reduction(n) for n in ("sum", "max", "mean", "variance", "std", "prod")},
    **{n: _along(n) for n in ("argmax", "cumsum", "cumprod", "sort", "argsort", "flip")},
    **{n: _softmax(n) for n in ("softmax", "log_softmax")},
    **{f"conv{rank}d": _convolution(rank) for rank in (1, 2, 3)},
    **{f"conv{rank}d_transpose": _convolution(rank, transposed=True) for rank in (1, 2)},
    **{n: _pool(n) for n in ("max_pool2d", "avg_pool2d")},
    **{n: _norm(n) for n in ("layer_norm", "rms_norm")},
    "group_norm": _group_norm,
    "matmul": _matmul,
    "attention": _attention,
    "concat": _concat,
    "topk": _top,
    "resize2d": _resize,
    "einsum": _einsum,
    "nll_loss": _loss,
}
