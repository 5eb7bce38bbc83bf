"""Assertions on tensors: what they test and print is read there."""

from __future__ import annotations

import numpy as np

from tests.hostile.four_floats import MAIN, body, inplace, module
from tests.hostile.machine import Machine, fails, floats
from tests.hostile.program import HostileProgram

_STORAGE = 's = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))'
_FLAG = 'flag = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([]), R.dtype("bool"))'
_OTHER = 'other = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([4]), R.dtype("float32"))'
_KERNELS = """
    @T.prim_func
    def accept(flag: T.Buffer((), "bool")):
        flag[()] = T.bool(True)

    @T.prim_func
    def clear(out: T.Buffer((4,), "float32")):
        for i in range(4):
            out[i] = T.float32(0)
"""
_CHECK = 'R.assert_op(flag, format="refused")'
_SAID = MAIN.replace(") ->", ', flag: R.Tensor((), "bool")) ->')


def _lines(*lines: str) -> str:
    return module(_KERNELS, body(MAIN, *lines))


def _refuses(bad: Machine, twin: Machine) -> bool:
    twin.run(floats(4))
    return fails(bad, "refused", floats(4))


def _depends_on_storages(bad: Machine, twin: Machine) -> bool:
    """Only what storages hold decides whether the assertion fails."""
    twin.run(floats(4), poison=0)
    bad.run(floats(4), poison=1)
    return fails(bad, "refused", floats(4), poison=0)


def _prints_the_result(bad: Machine, twin: Machine) -> bool:
    """The operand is -1, -2, -3, -4, the result 0, -1, -2, -3."""
    arguments = floats(4), np.array(False)
    return not fails(bad, "-4", *arguments) and fails(bad, "-3", *arguments) and fails(twin, "-4", *arguments)


_UPDATE = f"more = {inplace('add_one', 'n')}"
_PRINT = 'R.assert_op(flag, n, format="found {}")'

PROGRAMS: tuple[HostileProgram, ...] = (
    HostileProgram(
        what="the tensor that an assertion tests was killed",
        module=_lines(
            _STORAGE, _FLAG, "Module.accept(flag)", "R.memory.kill_tensor(flag)", _CHECK, "return x"
        ),
        twin=_lines(_STORAGE, _FLAG, "Module.accept(flag)", _CHECK, "R.memory.kill_tensor(flag)", "return x"),
        rule="SYM201",
        on_line="R.assert_op",
        shows=lambda bad, twin: bool(twin.run(floats(4))) and fails(bad, "", floats(4)),
    ),
    HostileProgram(
        what="nobody has written the tensor that an assertion tests",
        module=_lines(_STORAGE, _FLAG, _CHECK, "return x"),
        twin=_lines(_STORAGE, _FLAG, "Module.accept(flag)", _CHECK, "return x"),
        rule="SYM208",
        on_line="R.assert_op",
        shows=_depends_on_storages,
    ),
    HostileProgram(
        what="another tensor takes the memory of the condition before the assertion tests it",
        module=_lines(
            _STORAGE,
            _FLAG,
            _OTHER,
            "Module.accept(flag)",
            "Module.clear(other)",
            _CHECK,
            "y = R.add(x, other)",
            "return y",
        ),
        twin=_lines(
            _STORAGE,
            _FLAG,
            _OTHER,
            "Module.accept(flag)",
            _CHECK,
            "Module.clear(other)",
            "y = R.add(x, other)",
            "return y",
        ),
        rule="SYM203",
        on_line="Module.clear(other)",
        shows=_refuses,
    ),
    HostileProgram(
        what="the message of an assertion shows a tensor that an in-place call has overwritten",
        module=module(body(_SAID, "n = R.negative(x)", _UPDATE, _PRINT, "return more")),
        twin=module(body(_SAID, "n = R.negative(x)", _PRINT, _UPDATE, "return more")),
        rule="SYM210",
        on_line="R.assert_op",
        shows=_prints_the_result,
    ),
)
