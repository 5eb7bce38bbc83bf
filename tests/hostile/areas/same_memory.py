"""Views of one tensor: what overwrites one of them overwrites the others, and what they are views of."""

from __future__ import annotations

import numpy as np

from tests.hostile.machine import differs, floats
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import FOUR, four_floats, function, inplace, kernel

_X = floats(4)
_VIEW = "R.memory.view({}, R.shape([4]))".format
_TAKEN = function(
    f"a: {FOUR}",
    "with R.dataflow():",
    "    v = R.flatten(a)",
    f"    more = {inplace('add_one', 'v')}",
    "    R.output(more)",
    "return more",
    result=FOUR,
    name="taken",
    how="private=True",
)
_TURN = kernel("turn", "for i in range(4):", "    a[i] = a[i] + b[3 - i]", a="4", b="4")
_SECOND = (f"w = {_VIEW('<<n|x>>')}", "y = R.subtract(more, w)", "return y")


PROGRAMS: tuple[HostileProgram, ...] = (
    hostile(
        "two R.memory.view of one tensor",
        "SYM210",
        four_floats(
            "n = R.negative(x)",
            f"v = {_VIEW('n')}",
            _SECOND[0],
            f"more = {inplace('add_one', 'v')}",
            *_SECOND[1:],
            how="",
        ),
        shows=differs(np.ones(4), 1 - 2 * _X, _X),
    ),
    hostile(
        "a function overwrites its parameter through a view",
        "SYM210",
        four_floats("n = R.negative(x)", "more = Module.taken(n)", *_SECOND, functions=_TAKEN, how=""),
        shows=differs(np.ones(4), 1 - 2 * _X, _X),
    ),
    hostile(
        "a kernel in place reads, by a view of its operand, what it has overwritten",
        "SYM211",
        four_floats(
            "with R.dataflow():",
            "    n = R.negative(x)",
            "    v = R.flatten(n)",
            f"    more = {inplace('<<turn|add_to>>', 'n, v')}",
            "    y = R.negative(more)",
            "    R.output(y)",
            "return y",
            functions=_TURN,
            how="",
        ),
        shows=differs(_X + _X[::-1], 2 * _X, _X),
        also=frozenset({"SYM210"}),
    ),
)
