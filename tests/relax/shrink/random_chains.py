"""Random chains of operators, which TVM fuses to kernels of several stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import tvm
from tvm import relax, tirx
from tvm.relax import op

__all__ = ["Chains", "random_chains"]

_FLAT: Mapping[str, Callable[[Any], Any]] = {
    "relu": op.nn.relu,
    "gelu": op.nn.gelu,
    "silu": op.nn.silu,
    "exp": op.exp,
    "tanh": op.tanh,
    "sigmoid": op.sigmoid,
    "negative": op.negative,
    "sqrt": lambda x: op.sqrt(op.abs(x)),
    "square": lambda x: op.multiply(x, x),
    "half": lambda x: op.astype(op.astype(x, "float16"), "float32"),
    "double": lambda x: op.astype(
        op.multiply(op.astype(x, "float64"), relax.const(0.3, "float64")), "float32"
    ),
    "scaled": lambda x: op.add(op.multiply(x, relax.const(0.7)), relax.const(0.1)),
    "softmax": lambda x: op.nn.softmax(x, axis=-1),
    "softmax1": lambda x: op.nn.softmax(x, axis=1),
    "log_softmax": lambda x: op.nn.log_softmax(x, axis=-1),
    "centred": lambda x: op.subtract(x, op.mean(x, axis=[-1], keepdims=True)),
    "clip": lambda x: op.clip(x, -0.5, 0.5),
}


class Chains(NamedTuple):
    """A module of functions `chain0`, `chain1` …, and the values of its symbols."""

    module: tvm.IRModule
    binding: Mapping[str, int]
    names: Sequence[str]


class _Chain:
    """One function under way; `shape` is that of what comes next."""

    def __init__(self, random: Random, number: int, symbols: Mapping[str, Any]) -> None:
        self.random, self.number, self.symbols = random, number, symbols
        self.parameters: list[Any] = []

    def extent(self) -> Any:
        return self.random.choice([*self.symbols.values(), self.random.randint(1, 9)])

    def parameter(self, shape: Sequence[Any]) -> Any:
        kind = relax.TensorType(list(shape), "float32")
        self.parameters.append(relax.Var(f"p{self.number}_{len(self.parameters)}", kind))
        return self.parameters[-1]

    def image(self, emit: Callable[[Any], Any]) -> Any:
        """A convolution or a pool of an image, with what often stands behind it."""
        window, padding = self.random.choice(((1, 0), (3, 1), (3, 0), (2, 1)))
        channels, size = self.random.randint(1, 6), self.random.randint(5, 12)
        x = self.parameter([self.extent(), channels, size, size])
        stride = self.random.randint(1, 2)
        if self.random.random() < 0.3:
            pool = self.random.choice((op.nn.max_pool2d, op.nn.avg_pool2d))
            return emit(pool(x, (window, window), stride, padding))
        weight = self.parameter([self.random.randint(1, 6), channels, window, window])
        return emit(op.nn.conv2d(x, weight, strides=stride, padding=padding))

    def rows(self, emit: Callable[[Any], Any]) -> Any:
        """A matrix product, or a tensor that comes in."""
        inner = self.random.randint(1, 24)
        batch = [self.extent() for _ in range(self.random.randint(1, 2))]
        x = self.parameter([*batch, self.extent(), inner])
        if self.random.random() < 0.4:
            return x
        return emit(op.matmul(x, self.parameter([inner, self.random.randint(1, 24)])))

    def step(self, x: Any, emit: Callable[[Any], Any]) -> Any:
        """`x` behind one operator more."""
        shape = list(x.ty.shape.values)
        kind = self.random.random()
        if kind < 0.15:
            axes = list(range(len(shape)))
            self.random.shuffle(axes)
            return emit(op.permute_dims(x, axes))
        if kind < 0.3:
            other = self.parameter(self.random.choice((shape, shape[-1:])))
            return emit(self.random.choice((op.add, op.multiply, op.maximum, op.divide))(x, other))
        if kind < 0.38:
            weights = [self.parameter(shape[-1:]) for _ in range(2)]
            if self.random.random() < 0.5:
                return emit(op.nn.rms_norm(x, weights[0], axes=[-1]))
            return emit(op.nn.layer_norm(x, *weights, axes=[-1]))
        if kind < 0.42:
            return emit(op.concat([x, emit(op.exp(x))], axis=self.random.randrange(len(shape))))
        return emit(_FLAT[self.random.choice(sorted(_FLAT))](x))


def random_chains(seed: int, count: int) -> Chains:
    """So many functions of random operators, on tensors of random shapes."""
    random = Random(seed)
    symbols = {name: tirx.Var(name, "int64") for name in ("n", "m")}
    sizes = relax.ShapeType([*symbols.values()])
    builder, names = relax.BlockBuilder(), []
    for number in range(count):
        chain, name = _Chain(random, number, symbols), f"chain{number}"
        # parameters come up on the way, so that the body is written first
        draft = relax.BlockBuilder()
        with draft.function(name):
            with draft.dataflow():
                x = random.choice((chain.image, chain.rows))(draft.emit)
                for _ in range(random.randint(1, 6)):
                    x = chain.step(x, draft.emit)
                result = draft.emit_output(op.add(x, relax.const(0.0)) if x in chain.parameters else x)
            draft.emit_func_output(result, params=[*chain.parameters, relax.Var("sizes", sizes)])
        builder.add_func(draft.get()[name], name)
        names.append(name)
    return Chains(builder.get(), {name: random.randint(1, 12) for name in symbols}, names)
