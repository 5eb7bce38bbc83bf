"""Memory that is right only within declared bounds; the twins check them, or do without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.hostile.any_length import COPY, MODULE, ONES, storage, tensor
from tests.hostile.machine import Machine, fails, floats, gives, runs
from tests.hostile.program import HostileProgram

_KERNELS = f"""{MODULE}{COPY}{ONES}
    @T.prim_func
    def eight(source: T.handle, out: T.Buffer((8,), "float32")):
        k = T.int64()
        a = T.match_buffer(source, (k,), "float32")
        for i in range(8):
            out[i] = a[i]
"""
_N, _M = 'R.Tensor(("n",), "float32")', 'R.Tensor(("m",), "float32")'


def _assert(condition: str, number: int = 0) -> str:
    return f'_{number} = R.assert_op({condition}, format="out of bounds")'


def _function(*lines: str, params: str = f"x: {_N}", before: str = "", **declared: Mapping[str, int]) -> str:
    names = {"upper": "tir_var_upper_bound", "lower": "tir_var_lower_bound"}
    attributes = ", ".join(f'"{names[side]}": {dict(bounds)!r}' for side, bounds in declared.items())
    body = "\n".join(f"        {line}" for text in lines for line in text.split("\n"))
    symbols = "        n = T.int64()\n" + ("        m = T.int64()\n" if '"m"' in params else "")
    head = f"    @R.function(pure=False)\n    def main({params}) -> {_N}:\n"
    said = f"        R.func_attr({{{attributes}}})\n" if declared else ""
    return f"{_KERNELS}\n{before}{head}{said}{symbols}{body}\n"


def _dependent(
    what: str, module: str, twin: str, shows: Callable[[Machine, Machine], bool] | None = None
) -> HostileProgram:
    return HostileProgram(
        what=what,
        module=module,
        twin=twin,
        rule="SYM401",
        severity="warning",
        verdict="runtime-check",
        shows=shows,
    )


def _overrun(count: int, *more: Any) -> Callable[[Machine, Machine], bool]:
    """With `count` elements the allocator refuses the program; the twin says what is wrong."""

    def shows(bad: Machine, twin: Machine) -> bool:
        refused = fails(bad, "allocate", floats(count), *more)
        return refused and fails(twin, "out of bounds", floats(count), *more)

    return shows


_PLACED = f"s = {storage('16')}\na = {tensor('s', 'n')}\nModule.copy(x, a)\nreturn a"
_EIGHT = f"s = {storage('32')}\na = {tensor('s', '8')}\nModule.eight(x, a)\nreturn x"
_BRANCH = (
    f"if R.prim_value(n > 8):\n    s = {storage('16')}\n    a = {tensor('s', '8')}\n    Module.ones(a)\n"
    "    y = x\nelse:\n    y = x\nreturn y"
)
_KILLED = (
    f"s = {storage('n * 4')}\na = {tensor('s', 'n')}\nModule.copy(x, a)\n"
    "if R.prim_value(n > 8):\n    _ = R.memory.kill_tensor(a)\n    y = x\nelse:\n    y = x\n"
    'z = R.call_tir(Module.copy, (a,), out_ty=R.Tensor((n,), "float32"))\nreturn z'
)
_HELPER = f"""    @R.function(pure=False, private=True)
    def helper(x: {_M}) -> {_M}:
        m = T.int64()
        s = {storage("16")}
        a = {tensor("s", "m")}
        Module.copy(x, a)
        return a

"""
_CALLS = "y = Module.helper(x)\nreturn y"

PROGRAMS: tuple[HostileProgram, ...] = (
    _dependent(
        "a kernel reads 8 elements, n declared to be at least 8",
        _function(_EIGHT, upper={"n": 64}, lower={"n": 8}),
        _function(_assert("n >= 8"), _EIGHT, upper={"n": 64}, lower={"n": 8}),
    ),
    HostileProgram(
        what="a branch that overruns its storage, and that the declared bound never takes",
        module=_function(_BRANCH, upper={"n": 8}),
        twin=_function(_assert("n <= 8"), _BRANCH, upper={"n": 8}),
        rule="SYM401",
        severity="warning",
    ),
    HostileProgram(
        what="a tensor is killed in a branch that the declared bound never takes, and used behind it",
        module=_function(_KILLED, upper={"n": 8}),
        twin=_function(_assert("n <= 8"), _KILLED, upper={"n": 8}),
        rule="SYM401",
        severity="warning",
        shows=lambda bad, twin: (
            gives(bad, floats(8), floats(8))
            and not runs(bad, floats(9))
            and fails(twin, "out of bounds", floats(9))
        ),
    ),
    _dependent(
        "a callee has 16 bytes for m floats, its caller declares at most 4",
        _function(_CALLS, before=_HELPER, upper={"n": 4}),
        _function(_assert("n <= 4"), _CALLS, before=_HELPER, upper={"n": 4}),
        _overrun(2000),
    ),
    HostileProgram(
        what="16 bytes for n floats, n declared to be at least 9: wrong even for callers who keep to that",
        module=_function(_PLACED, upper={"n": 64}, lower={"n": 9}),
        twin=_function(_PLACED.replace("[16]", "[n * 4]"), upper={"n": 64}, lower={"n": 9}),
        rule="SYM101",
        verdict="runtime-check",
        counterexample={"n": 9},
    ),
)
