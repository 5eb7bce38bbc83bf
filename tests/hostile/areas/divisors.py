"""Divisions inside a choice between two extents, which SIGFPE stops where nothing guards them."""

from __future__ import annotations

from signal import SIGFPE

from tests.hostile.machine import Machine, floats
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import VECTOR, function, kernel, module


def _divides(bad: Machine, twin: Machine) -> bool:
    """The twin lives with four columns; the program does not come back."""
    return twin.run(floats(3, 4))[0].size > 0 and bad.run(floats(3, 4))[0].size < 0


def _program(what: str, extent: str, **counterexample: int) -> HostileProgram:
    text = module(
        kernel("fill", VECTOR, "    b[i] = T.float32(1)", b="n"),
        function(
            'x: R.Tensor(("m", "n"), "float32")',
            "cls = Module",
            f'y = R.call_tir(cls.fill, (), out_ty=R.Tensor(({extent},), "float32"))',
            "return y",
            result='R.Tensor(ndim=1, dtype="float32")',
            how="",
        ),
    )
    return hostile(
        what,
        "SYM109",
        text,
        severity="warning",
        verdict="runtime-check",
        counterexample=counterexample or {"n": 1},
        on_line="R.call_tir",
        shows=_divides,
        signal=SIGFPE,
    )


_GUARDED = "<<(n - 4)|T.max(n - 4, 1)>>"

PROGRAMS: tuple[HostileProgram, ...] = (
    _program(
        "the test of the choice says nothing about the divisor",
        f"T.if_then_else(m > 2, m // {_GUARDED} + 1, n)",
        m=3,
        n=1,
    ),
    _program(
        "the division is on the wrong side of its guard",
        "T.if_then_else(n > 4, <<m, m % (n - 4) + 1|m % (n - 4) + 1, m>>)",
    ),
    _program(
        "both sides of a conjunction are computed",
        f"T.if_then_else(T.And(n > 4, m // {_GUARDED} > 2), m, n)",
    ),
)
