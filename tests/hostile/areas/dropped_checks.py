"""Checks that are not made: TVM drops a call whose result nobody needs, and what that call would refuse."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tests.hostile.any_length import COPY, MODULE, PLUS, storage, tensor
from tests.hostile.machine import Machine, fails
from tests.hostile.program import HostileProgram

__all__ = ["PROGRAMS"]

_AT_MOST_FOUR = """
    @T.prim_func(s_tir=True)
    def at_most_four(source: T.handle, out: T.handle):
        k = T.int64()
        a = T.match_buffer(source, (k,), "float32")
        b = T.match_buffer(out, (k,), "float32")
        with T.sblock("root"):
            assert k <= 4, "too many"
            for i in range(k):
                b[i] = a[i]
"""
_CHECK = """
    @T.prim_func
    def check(source: T.handle):
        k = T.int64()
        a = T.match_buffer(source, (k,), "float32")
        assert k <= 4, "too many"
"""


class _Targeted(Machine):
    """A module built by the pipeline of its target, which drops calls that nobody needs."""

    @cached_property
    def executable(self) -> Any:
        target = tvm.target.Target("llvm")
        with target:
            return relax.build(self.module, target, relax_pipeline=relax.get_default_pipeline(target))


def _module(kernel: str, *lines: str, result: str) -> str:
    floats = 'R.Tensor(("n",), "float32")'
    body = "\n".join(f"        {line}" for line in (*lines, "Module.copy(x, t)", f"return {result}"))
    params = f'x: {floats}, y: R.Tensor(("m",), "float32")'
    head = f"    @R.function(pure=False)\n    def main({params}) -> {floats}:\n"
    return f"{MODULE}{kernel}{COPY}\n{head}        n = T.int64()\n        m = T.int64()\n{body}\n"


def _program(what: str, kernel: str, call: str, size: str, kept: str = "") -> HostileProgram:
    """The twin returns the result `z` of the call, or makes it as `kept` says."""
    lines = f"s = {storage(size)}", f"t = {tensor('s', 'n')}"

    def overruns(bad: Machine, twin: Machine) -> bool:
        long, short = np.zeros(2000, "float32"), np.zeros(4, "float32")
        refused = fails(_Targeted(bad.module), "attempted to allocate", long, short)
        return refused and not fails(_Targeted(twin.module), "attempted to allocate", long, short)

    return HostileProgram(
        what=what,
        module=_module(kernel, call, *lines, result="t"),
        twin=_module(kernel, kept or call, *lines, result="t" if kept else "z"),
        rule="SYM101",
        verdict="runtime-check",
        on_line="t = R.memory.alloc_tensor",
        shows=overruns,
    )


_OUT = 'out_ty=R.Tensor((n,), "float32")'

PROGRAMS = (
    _program(
        "the kernel that asserts n <= 4 is called for a result that nobody reads",
        _AT_MOST_FOUR,
        f"z = R.call_tir(Module.at_most_four, (x,), {_OUT})",
        "16",
    ),
    _program(
        "the kernel that compares n with m is called for a result that nobody reads",
        PLUS,
        f"z = R.call_tir(Module.plus, (x, y), {_OUT})",
        "m * 4",
    ),
    _program(
        "a kernel that asserts n <= 4 and stores nothing is called",
        _CHECK,
        "Module.check(x)",
        "16",
        'R.assert_op(n <= 4, format="too many")',
    ),
)
