"""Divisions inside a choice between two extents, which SIGFPE stops where nothing guards them."""

from __future__ import annotations

from signal import SIGFPE

from tests.hostile.machine import Machine, floats
from tests.hostile.program import HostileProgram

_MODULE = """
@I.ir_module
class Module:
    @T.prim_func
    def fill(out: T.handle):
        k = T.int64()
        b = T.match_buffer(out, (k,), "float32")
        for i in range(k):
            b[i] = T.float32(1)

    @R.function
    def main(x: R.Tensor(("m", "n"), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
        m = T.int64()
        n = T.int64()
        cls = Module
        y = R.call_tir(cls.fill, (), out_ty=R.Tensor((EXTENT,), "float32"))
        return y
"""


def _divides(bad: Machine, twin: Machine) -> bool:
    """The twin lives with four columns; the program does not come back."""
    return twin.run(floats(3, 4))[0].size > 0 and bad.run(floats(3, 4))[0].size < 0


def _program(what: str, extent: str, twin: str = "", **counterexample: int) -> HostileProgram:
    """A program with `extent`, and by default a twin that divides by no less than 1."""
    return HostileProgram(
        what=what,
        module=_MODULE.replace("EXTENT", extent),
        twin=_MODULE.replace("EXTENT", twin or extent.replace("(n - 4)", "T.max(n - 4, 1)")),
        rule="SYM109",
        severity="warning",
        verdict="runtime-check",
        counterexample=counterexample or {"n": 1},
        on_line="R.call_tir",
        shows=_divides,
        signal=SIGFPE,
    )


PROGRAMS: tuple[HostileProgram, ...] = (
    _program(
        "the test of the choice says nothing about the divisor",
        "T.if_then_else(m > 2, m // (n - 4) + 1, n)",
        m=3,
        n=1,
    ),
    _program(
        "the division is on the wrong side of its guard",
        "T.if_then_else(n > 4, m, m % (n - 4) + 1)",
        "T.if_then_else(n > 4, m % (n - 4) + 1, m)",
    ),
    _program(
        "both sides of a conjunction are computed",
        "T.if_then_else(T.And(n > 4, m // (n - 4) > 2), m, n)",
    ),
)
