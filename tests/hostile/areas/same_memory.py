"""Views of one tensor: what overwrites one of them overwrites the others, and what they are views of."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.hostile.four_floats import PURE, body, inplace, module, private
from tests.hostile.machine import Machine, floats, gives
from tests.hostile.program import HostileProgram

_X = floats(4)
_VIEW = "R.memory.view({}, R.shape([4]))"


def _pair(head: str, *lines: str, bad: str, twin: str, functions: tuple[str, ...] = ()) -> tuple[str, str]:
    """The module with `bad` and with `twin` in place of `@`."""
    first, second = (body(head, *(line.replace("@", one) for line in lines)) for one in (bad, twin))
    return module(*functions, first), module(*functions, second)


def _flow(*lines: str) -> tuple[str, ...]:
    """The lines in a dataflow block that ends with `y`."""
    return ("with R.dataflow():", *(f"    {line}" for line in (*lines, "R.output(y)")), "return y")


def _seen(
    what: str, pair: tuple[str, str], meant: Any, given: Any, rule: str = "SYM210", **more: Any
) -> HostileProgram:
    """`meant` and `given` are what the program and its twin would give if each tensor had its own memory."""

    def shows(one: Machine, other: Machine) -> bool:
        return not gives(one, meant, _X) and gives(other, given, _X)

    return HostileProgram(what=what, module=pair[0], twin=pair[1], rule=rule, shows=shows, **more)


_APART = 1 - 2 * _X
_TAKEN = body(
    private(PURE, "taken").replace("x:", "a:"),
    "with R.dataflow():",
    "    v = R.flatten(a)",
    f"    more = {inplace('add_one', 'v')}",
    "    R.output(more)",
    "return more",
)
_TWO_OF = """
    @T.prim_func
    def turn(values: T.Buffer((4,), "float32"), more: T.Buffer((4,), "float32")):
        for i in range(4):
            values[i] = values[i] + more[3 - i]
"""


def _twice(kernel: str, view: str) -> str:
    """A kernel in place that is given one tensor twice, the second time by a view of it."""
    lines = (
        "n = R.negative(x)",
        f"v = {view}",
        f"more = {inplace(kernel, 'n, v')}",
        "y = R.negative(more)",
    )
    return module(_TWO_OF, body(PURE, *_flow(*lines)))


PROGRAMS: tuple[HostileProgram, ...] = (
    _seen(
        "two R.memory.view of one tensor",
        _pair(
            PURE,
            "n = R.negative(x)",
            f"v = {_VIEW.format('n')}",
            f"w = {_VIEW.format('@')}",
            f"more = {inplace('add_one', 'v')}",
            "y = R.subtract(more, w)",
            "return y",
            bad="n",
            twin="x",
        ),
        np.ones(4),
        _APART,
    ),
    _seen(
        "a function overwrites its parameter through a view",
        _pair(
            PURE,
            "n = R.negative(x)",
            "more = Module.taken(n)",
            f"w = {_VIEW.format('@')}",
            "y = R.subtract(more, w)",
            "return y",
            bad="n",
            twin="x",
            functions=(_TAKEN,),
        ),
        np.ones(4),
        _APART,
    ),
    _seen(
        "a kernel in place reads, by a view of its operand, what it has overwritten",
        (_twice("turn", "R.flatten(n)"), _twice("add_to", "R.flatten(n)")),
        _X + _X[::-1],
        2 * _X,
        rule="SYM211",
        also=frozenset({"SYM210"}),
    ),
)
