"""Memory that is right only within declared bounds; the twins check them, or do without."""

from __future__ import annotations

from typing import Any

from tests.hostile.machine import Machine, fails, floats, gives
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import COPY, ONES, N, function, kernel, module, storage, tensor

_KERNELS = COPY + ONES + kernel("eight", "for i in range(8):", "    b[i] = a[i]", a="n", b="8")
_M = 'R.Tensor(("m",), "float32")'


def _bounded(
    what: str, bounds: str, *lines: str, rule: str = "SYM401", check: str = "", before: str = "", **more: Any
) -> HostileProgram:
    """`bounds` are declared; the twin makes the `check` that they hold."""
    asserted = f'<<|_0 = R.assert_op({check}, format="out of bounds")\n>>' if check else ""
    body = (f"R.func_attr({{{bounds}}})", asserted + lines[0], *lines[1:])
    text = module(_KERNELS, before, function(f"x: {N}", *body, result=N))
    return hostile(what, rule, text, **{"severity": "warning", **more})


_UPPER, _LOWER = '"tir_var_upper_bound": {{"n": {}}}'.format, ', "tir_var_lower_bound": {{"n": {}}}'.format


def _overruns(bad: Machine, twin: Machine) -> bool:
    """The allocator refuses the program; the twin says what is wrong."""
    return fails(bad, "allocate", floats(2000)) and fails(twin, "out of bounds", floats(2000))


def _uses_what_was_killed(bad: Machine, twin: Machine) -> bool:
    within = gives(bad, floats(8), floats(8)) and fails(bad, "", floats(9))
    return within and fails(twin, "out of bounds", floats(9))


PROGRAMS: tuple[HostileProgram, ...] = (
    _bounded(
        "a kernel reads 8 elements, n declared to be at least 8",
        _UPPER(64) + _LOWER(8),
        *(f"s = {storage('32')}", f"a = {tensor('s', '8')}", "Module.eight(x, a)", "return x"),
        check="n >= 8",
        verdict="runtime-check",
    ),
    _bounded(
        "a branch that overruns its storage, and that the declared bound never takes",
        _UPPER(8),
        "if R.prim_value(n > 8):",
        *(f"    s = {storage('16')}", f"    a = {tensor('s', '8')}", "    Module.ones(a)", "    y = x"),
        *("else:", "    y = x", "return y"),
        check="n <= 8",
    ),
    _bounded(
        "a tensor is killed in a branch that the declared bound never takes, and used behind it",
        _UPPER(8),
        *(f"s = {storage('n * 4')}", f"a = {tensor('s', 'n')}", "Module.copy(x, a)"),
        *("if R.prim_value(n > 8):", "    _ = R.memory.kill_tensor(a)", "    y = x", "else:", "    y = x"),
        'z = R.call_tir(Module.copy, (a,), out_ty=R.Tensor((n,), "float32"))',
        "return z",
        check="n <= 8",
        shows=_uses_what_was_killed,
    ),
    _bounded(
        "a callee has 16 bytes for m floats, its caller declares at most 4",
        _UPPER(4),
        *("y = Module.helper(x)", "return y"),
        check="n <= 4",
        before=function(
            f"x: {_M}",
            *(f"s = {storage('16')}", f"a = {tensor('s', 'm')}", "Module.copy(x, a)", "return a"),
            result=_M,
            name="helper",
            how="pure=False, private=True",
        ),
        verdict="runtime-check",
        shows=_overruns,
    ),
    _bounded(
        "16 bytes for n floats, n declared to be at least 9: wrong even for callers who keep to that",
        _UPPER(64) + _LOWER(9),
        *(f"s = {storage('<<16|n * 4>>')}", f"a = {tensor('s', 'n')}", "Module.copy(x, a)", "return a"),
        rule="SYM101",
        severity="error",
        verdict="runtime-check",
        counterexample={"n": 9},
    ),
)
