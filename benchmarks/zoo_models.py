"""The models that `benchmarks.plan_zoo` measures: imported ones, those of the tests, and large made ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import tvm
from tvm import relax, tirx

from benchmarks.harness import decoder_of
from tests.models.imported import IMPORTED
from tests.models.planned import Case, imported_case, ordinary_case
from tests.models.planned.case import bind
from tests.models.zoo import MODELS

__all__ = ["GROUPS", "case_named"]

_SIZES = (1, 7, 16, 33, 64)


def _llama_32() -> Case:
    return Case(
        name="llama_32_layers",
        build=partial(decoder_of, 32),
        bindings=bind("n", *_SIZES, b=1),
        function="forward",
    )


def chain(length: int) -> tvm.IRModule:
    """`length` elementwise operations, each on the two results before it."""
    builder, (x,) = relax.BlockBuilder(), _inputs("n")
    with builder.function("main", [x]):
        with builder.dataflow():
            new = old = x
            for index in range(length):
                operator = (relax.op.add, relax.op.multiply, relax.op.subtract)[index % 3]
                new, old = builder.emit(operator(new, old)), new
            result = builder.emit_output(relax.op.exp(new))
        builder.emit_func_output(result)
    return builder.finalize()


def fan(width: int) -> tvm.IRModule:
    """`width` tensors of five sizes that are all live at once, then summed up."""
    inputs = [
        relax.Var(f"x{columns}", relax.TensorType((symbol, columns), "float32"))
        for symbol in [tirx.Var("n", "int64")]
        for columns in (2, 3, 5, 8, 13)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            made = [
                builder.emit(relax.op.add(inputs[index % len(inputs)], relax.const(float(index))))
                for index in range(width)
            ]
            total = builder.emit(relax.op.sum(made[0]))
            for one in made[1:]:
                total = builder.emit(relax.op.add(total, builder.emit(relax.op.sum(one))))
            result = builder.emit_output(total)
        builder.emit_func_output(result)
    return builder.finalize()


def many_symbols(count: int) -> tvm.IRModule:
    """`count` tensors of a length each, processed one by one, joined, and worked on together."""
    inputs = _inputs(*(f"n{index}" for index in range(count)))
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            halves = []
            for x in inputs:
                once = builder.emit(relax.op.exp(x))
                wide = builder.emit(relax.op.concat([once, once], axis=1))
                halves.append(builder.emit(relax.op.strided_slice(wide, [1], [2], [10])))
            joined = builder.emit(relax.op.concat(halves, axis=0))
            weighed = builder.emit(relax.op.nn.softmax(joined))
            for x in halves:
                crossed = builder.emit(relax.op.matmul(weighed, builder.emit(relax.op.permute_dims(x))))
                weighed = builder.emit(relax.op.matmul(crossed, x))
            result = builder.emit_output(weighed)
        builder.emit_func_output(result)
    return builder.finalize()


def merged_weights(layers: int) -> tvm.IRModule:
    """`layers` of attention whose weights each call computes: as large at any length, beside n * n scores."""
    builder, operator = relax.BlockBuilder(), relax.op
    length, dtype = tirx.Var("n", "int64"), "float32"
    x = relax.Var("x", relax.TensorType((length, 512), dtype))
    shapes = {
        f"{kind}{i}": columns for i in range(layers) for kind, columns in (("wide", 1536), ("down", 512))
    }
    weights = [relax.Var(name, relax.TensorType((512, columns), dtype)) for name, columns in shapes.items()]
    head = relax.Var("head", relax.TensorType((2048, 512), dtype))
    with builder.function("main", [x, *weights, head]):
        with builder.dataflow():
            now = x
            for wide, down in zip(weights[::2], weights[1::2], strict=True):
                rows = builder.emit(operator.matmul(now, builder.emit(operator.multiply(wide, wide))))
                parts = (operator.strided_slice(rows, [1], [512 * i], [512 * i + 512]) for i in (0, 1))
                heads = (operator.reshape(builder.emit(part), (length, 16, 32)) for part in parts)
                value, key = [builder.emit(operator.permute_dims(one, (1, 0, 2))) for one in heads]
                products = builder.emit(operator.matmul(key, operator.permute_dims(key, (0, 2, 1))))
                seen = builder.emit(operator.matmul(builder.emit(operator.exp(products)), value))
                seen = builder.emit(operator.reshape(operator.permute_dims(seen, (1, 0, 2)), (length, 512)))
                less = builder.emit(operator.multiply(down, down))
                now = builder.emit(operator.add(builder.emit(operator.matmul(seen, less)), now))
            now = builder.emit(operator.tanh(now))
            result = builder.emit_output(operator.matmul(now, builder.emit(operator.permute_dims(head))))
        builder.emit_func_output(result)
    return builder.finalize()


def _inputs(*rows: str) -> list[relax.Var]:
    made = ((name, tirx.Var(name, "int64")) for name in rows)
    return [relax.Var(f"x_{name}", relax.TensorType((symbol, 8), "float32")) for name, symbol in made]


def _made(name: str, build: Callable[[], tvm.IRModule], symbols: int = 1) -> Case:
    names = ["n"] if symbols == 1 else [f"n{index}" for index in range(symbols)]
    bindings = tuple({s: _SIZES[(k + i) % len(_SIZES)] for i, s in enumerate(names)} for k in range(5))
    return Case(name=name, build=build, bindings=bindings)


_MADE: Mapping[str, Callable[[], Case]] = {
    "llama_32_layers": _llama_32,
    "bindings_8000": lambda: _made("bindings_8000", partial(chain, 8000)),
    "live_4000": lambda: _made("live_4000", partial(fan, 4000)),
    "merged_weights": lambda: _made("merged_weights", partial(merged_weights, 4)),
    **{
        f"symbols_{count}": lambda count=count: _made(f"symbols_{count}", partial(many_symbols, count), count)
        for count in (2, 4, 8, 14, 20)
    },
}

GROUPS: Mapping[str, tuple[str, ...]] = {
    "imported": IMPORTED,
    "ordinary": tuple(f"model/{name}" for name in MODELS),
    "made": tuple(_MADE),
}
"""The names of the models, by where they come from."""


def case_named(name: str) -> Case:
    """The model `name` of one of the groups; raises KeyError."""
    if name in _MADE:
        return _MADE[name]()
    return ordinary_case(name.removeprefix("model/")) if name.startswith("model/") else imported_case(name)
