"""Modules in TVMScript that tests of several rooms use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
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
