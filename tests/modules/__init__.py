"""Modules in TVMScript that tests of several rooms use."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm.script import ir as I  # noqa: N812


def later_ir_module(script: type) -> Callable[[], tvm.IRModule]:
    """Return what parses the class `script`, once it is wanted: a file may hold many.

    TVM looks for `ir_module` in the line above a class, to know that it holds a module.
    """

    def build() -> tvm.IRModule:
        return I.ir_module(script)

    build.__name__ = build.__qualname__ = script.__name__
    build.__doc__, build.__module__ = script.__doc__, script.__module__
    return build
