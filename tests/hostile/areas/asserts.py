"""Assertions on tensors: what they test and print is read there."""

from __future__ import annotations

import numpy as np

from tests.hostile.machine import Machine, fails, floats
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import FLAG, FOUR, four_floats, function, inplace, kernel, module, storage, tensor

_CHECK = 'R.assert_op(flag, format="refused")'


def _tested(*lines: str) -> str:
    """A module whose assertion tests a flag in a storage of its own."""
    return module(
        """
    @T.prim_func
    def accept(flag: T.Buffer((), "bool")):
        flag[()] = T.bool(True)
""",
        kernel("clear", "for i in range(4):", "    a[i] = T.float32(0)", a="4"),
        function(
            f"x: {FOUR}",
            f"s = {storage('64')}",
            f"flag = {tensor('s', '', dtype='bool')}",
            *lines,
            result=FOUR,
        ),
    )


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
_KILL, _CLEAR = "R.memory.kill_tensor(flag)", "Module.clear(other)"

PROGRAMS: tuple[HostileProgram, ...] = (
    hostile(
        "the tensor that an assertion tests was killed",
        "SYM201",
        _tested("Module.accept(flag)", f"<<{_KILL}\n{_CHECK}|{_CHECK}\n{_KILL}>>", "return x"),
        on_line="R.assert_op",
        shows=lambda bad, twin: bool(twin.run(floats(4))) and fails(bad, "", floats(4)),
    ),
    hostile(
        "nobody has written the tensor that an assertion tests",
        "SYM208",
        _tested(f"<<|Module.accept(flag)\n>>{_CHECK}", "return x"),
        on_line="R.assert_op",
        shows=_depends_on_storages,
    ),
    hostile(
        "another tensor takes the memory of the condition before the assertion tests it",
        "SYM203",
        _tested(
            f"other = {tensor('s', '4')}",
            "Module.accept(flag)",
            f"<<{_CLEAR}\n{_CHECK}|{_CHECK}\n{_CLEAR}>>",
            "y = R.add(x, other)",
            "return y",
        ),
        on_line="Module.clear(other)",
        shows=_refuses,
    ),
    hostile(
        "the message of an assertion shows a tensor that an in-place call has overwritten",
        "SYM210",
        four_floats(
            "n = R.negative(x)",
            f"<<{_UPDATE}\n{_PRINT}|{_PRINT}\n{_UPDATE}>>",
            "return more",
            more=f", flag: {FLAG}",
        ),
        on_line="R.assert_op",
        shows=_prints_the_result,
    ),
)
