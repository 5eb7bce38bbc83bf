"""Checks that are not made: TVM drops a call whose result nobody needs, and what that call would refuse."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tests.hostile.machine import Machine, fails
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import COPY, PLUS, VECTOR, N, function, kernel, module, storage, tensor

__all__ = ["PROGRAMS"]

_AT_MOST_FOUR = kernel(
    "at_most_four",
    *('with T.sblock("root"):', '    assert n <= 4, "too many"', f"    {VECTOR}", "        b[i] = a[i]"),
    a="n",
    b="n",
).replace("T.prim_func", "T.prim_func(s_tir=True)")
_CHECK = kernel("check", 'assert n <= 4, "too many"', a="n")


class _Targeted(Machine):
    """A module built by the pipeline of its target, which drops calls that nobody needs."""

    @cached_property
    def executable(self) -> Any:
        target = tvm.target.Target("llvm")
        with target:
            return relax.build(self.module, target, relax_pipeline=relax.get_default_pipeline(target))


def _overruns(bad: Machine, twin: Machine) -> bool:
    long, short = np.zeros(2000, "float32"), np.zeros(4, "float32")
    refused = fails(_Targeted(bad.module), "attempted to allocate", long, short)
    return refused and not fails(_Targeted(twin.module), "attempted to allocate", long, short)


def _program(what: str, kernel: str, call: str, size: str, *, result: str = "<<t|z>>") -> HostileProgram:
    """The twin returns the result `z` of the call, or makes another one."""
    main = function(
        f'x: {N}, y: R.Tensor(("m",), "float32")',
        *(call, f"s = {storage(size)}", f"t = {tensor('s', 'n')}", "Module.copy(x, t)", f"return {result}"),
        result=N,
    )
    return hostile(
        what,
        "SYM101",
        module(kernel, COPY, main),
        verdict="runtime-check",
        on_line="t = R.memory.alloc_tensor",
        shows=_overruns,
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
        '<<Module.check(x)|R.assert_op(n <= 4, format="too many")>>',
        "16",
        result="t",
    ),
)
