"""Graphs with concatenations, slices and paddings: random ones, and some that are written step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from random import Random
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax import op

from symalloc.relax.ir_types import effect
from symalloc.relax.rewrite import ModuleDraft

__all__ = ["random_graph", "stepwise"]


def random_graph(seed: int) -> tvm.IRModule:
    """A function of (3, n, 4), whose tensors are concatenated on each axis, also on that of n."""
    random, builder, n = Random(seed), relax.BlockBuilder(), tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([3, n, 4], "float32"))
    made: list[Any] = [x]
    with builder.function("main", [x]):
        with builder.dataflow():
            for _ in range(random.randint(5, 12)):
                made.append(builder.emit(_next(random, made)))
            ends = [builder.emit(op.sum(one, axis=[0, 2])) for one in made[-2:]]
            result = builder.emit_output(relax.Tuple([*ends, made[-1]]))
        builder.emit_func_output(result)
    return builder.finalize()


def _next(random: Random, made: list[Any]) -> Any:
    """An operator on some of what was made."""
    one = random.choice(made[-4:])
    a, _, c = one.ty.shape
    kind = random.choice(("matmul", "tanh", "relu", "add", "slice", "pad", *("concat",) * 5))
    if kind == "matmul":
        weight = np.random.default_rng(random.randint(0, 9)).standard_normal((int(c), random.randint(2, 6)))
        return op.matmul(one, relax.const(weight.astype("float32")))
    if kind == "concat":
        axis = random.choice((0, 1, 2, -1))
        rest = [at for at in range(3) if at != axis % 3]
        alike = [t for t in made if all(_same(t.ty.shape[at], one.ty.shape[at]) for at in rest)]
        return op.concat([random.choice(alike) for _ in range(random.randint(2, 3))], axis=axis)
    if kind == "add":
        alike = [t for t in made if all(map(_same, t.ty.shape, one.ty.shape))]
        return op.add(one, random.choice(alike))
    if kind == "slice":
        axis = random.choice((0, 2))
        extent = int((a, None, c)[axis])
        begin = random.randrange(extent)
        return op.strided_slice(one, axes=[axis], begin=[begin], end=[random.randint(begin + 1, extent)])
    if kind == "pad":
        return op.nn.pad(one, [random.randint(0, 1), 0, 0, 0, 1, random.randint(0, 1)])
    return op.tanh(one) if kind == "tanh" else op.nn.relu(one)


def _same(one: Any, other: Any) -> bool:
    return bool(tvm.sym.Analyzer().can_prove_equal(one, other))


# -- step by step --------------------------------------------------------------------------------------------


def _joined(i: Any, j: Any, x: Any, y: Any) -> Any:
    return tirx.if_then_else(j >= 8, y[i, j - 8], x[i, j])


WIDE: Mapping[str, Callable[..., Any]] = {
    "wide": lambda i, j, x: x[i, 15 - j] + 1.0,
    "join": _joined,
    "joined": lambda i, j, x, y: te.max(_joined(i, j, x, y), 0.0),
    "sum": lambda i, j, x, y: tirx.if_then_else(j < 8, x[i, j] + y[i, j], 0.0),
    "turned": lambda i, j, x, y: tirx.if_then_else(j >= 8, y[i, j - 8], x[i, 7 - j]),
}
"""Kernels whose output is (n, 16)."""
NARROW: Mapping[str, Callable[..., Any]] = {
    "tanh": lambda i, j, x: te.tanh(x[i, j]),
    "half": lambda i, j, x: x[i, j] * 0.5,
}
"""Kernels whose output is (n, 8)."""


def _kernel(name: str) -> tirx.PrimFunc:
    n, wide = te.var("n", "int64"), name in WIDE
    value = WIDE[name] if wide else NARROW[name]
    extent = 16 if name == "wide" else 8
    sources = [te.placeholder((n, extent), "float32", one) for one in [*signature(value).parameters][2:]]
    sources = sources or [te.placeholder((n, 8), "float32", one) for one in "xy"]
    out = te.compute((n, 16 if wide else 8), lambda i, j: value(i, j, *sources), name)
    return te.create_prim_func([*sources, out], index_dtype_override="int64").with_attr("tirx.noalias", True)


def stepwise(steps: str) -> tvm.IRModule:
    """A lowered function of x, (n, 8): `a = tanh x; tanh x a; c = join a b; return c`: a step makes a tensor,
    or calls a kernel on some that are there.
    """
    draft, builder = ModuleDraft(tvm.IRModule({})), relax.BlockBuilder()
    kernels = {name: draft.add(name, _kernel(name)) for name in (*WIDE, *NARROW)}
    n = tirx.Var("n", "int64")
    known: dict[str, Any] = {"x": relax.Var("x", relax.TensorType([n, 8], "float32"))}
    bindings: list[Any] = []
    *calls, last = (step.split() for step in steps.split("; "))
    for words in calls:
        if words[1] == "=":
            width = 16 if words[2] in WIDE else 8
            made = builder.normalize(op.builtin.alloc_tensor(relax.ShapeExpr([n, width]), "float32", 0))
            known[words[0]] = relax.Var(words[0], made.ty)
            bindings.append(relax.VarBinding(known[words[0]], made))
            words = [*words[2:], words[0]]
        bindings.append(effect(kernels[words[0]], [known[one] for one in words[1:]]))
    outputs = [known[one] for one in last[1:]]
    result = builder.normalize(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    bindings.append(relax.VarBinding(relax.Var("result", result.ty), result))
    body = builder.normalize(relax.SeqExpr([relax.BindingBlock(bindings)], bindings[-1].var))
    main = relax.Function([known["x"]], body, result.ty, is_pure=True)
    draft.add_exactly("main", main.with_attr("relax.force_pure", True))
    return draft.finished()
