"""Modules in TVMScript that tests of several rooms use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.script import ir as I  # noqa: N812

CHAIN = """\
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 16), "float32")) -> R.Tensor(("n", 16), "float32"):
        a = R.exp(x)
        b = R.add(a, x)
        return R.multiply(a, b)
"""
"""The script of a chain of three operators."""
FAULTY = """\
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        m = T.int64()
        storage = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        alloc = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([m]), R.dtype("float32"))
        filled = R.call_packed("fill", alloc, ty_args=(R.Tensor((m,), "float32"),))
        return filled
"""
"""A tensor of m floats on 16 bytes."""


def sum_squared() -> tvm.IRModule:
    """(x + x) squared, of n rows."""
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n, 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        y = builder.emit(relax.op.add(x, x))
        builder.emit_func_output(builder.emit(relax.op.multiply(y, y)))
    return builder.get()


def later_ir_module(script: type) -> Callable[[], tvm.IRModule]:
    """Return what parses the class `script`, once it is wanted: a file may hold many.

    TVM looks for `ir_module` in the line above a class, to know that it holds a module.
    """

    def build() -> tvm.IRModule:
        return I.ir_module(script)

    build.__name__ = build.__qualname__ = script.__name__
    build.__doc__, build.__module__ = script.__doc__, script.__module__
    return build


def exported(network: nn.Module, **inputs: Any) -> tvm.IRModule:
    """The module of `network`; an input is a shape of float32, or what its spec says."""
    spec = {
        name: nn.spec.Tensor(given, "float32") if isinstance(given, Sequence) else given
        for name, given in inputs.items()
    }
    mod, _ = network.export_tvm({"forward": spec})
    return mod
