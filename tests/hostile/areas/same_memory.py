"""Views of one tensor: what overwrites one of them overwrites the others, and what they are views of."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.hostile.four_floats import MAIN, PURE, body, inplace, module, private
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
    name: str, what: str, pair: tuple[str, str], meant: Any, given: Any, rule: str = "SYM210", **more: Any
) -> HostileProgram:
    """`meant` and `given` are what the program and its twin would give if each tensor had its own memory."""

    def shows(one: Machine, other: Machine) -> bool:
        return not gives(one, meant, _X) and gives(other, given, _X)

    return HostileProgram(name=name, what=what, module=pair[0], twin=pair[1], rule=rule, shows=shows, **more)


def _in_dataflow(view: str, again: str, **more: Any) -> tuple[str, str]:
    """n + 1 in place in a `view` of n, less n by the name `again`; the twin takes x in its place."""
    lines = (
        "n = R.negative(x)",
        f"v = {view}",
        f"more = {inplace('add_one', 'v')}",
        f"w = {again}",
        "y = R.subtract(more, w)",
    )
    return _pair(PURE, *_flow(*lines), **{"bad": "n", "twin": "x", **more})


_APART = 1 - 2 * _X
_INNER = body(private(PURE, "seen").replace("x:", "a:"), f"v = {_VIEW.format('a')}", "return v")
_TAKEN = body(
    private(PURE, "taken").replace("x:", "a:"),
    "with R.dataflow():",
    "    v = R.flatten(a)",
    f"    more = {inplace('add_one', 'v')}",
    "    R.output(more)",
    "return more",
)
_STORAGE = 's = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("uint8"))'
_TWO_OF = """
    @T.prim_func
    def two_of(values: T.Buffer((4,), "float32"), out: T.Buffer((4,), "float32")):
        for i in range(4):
            out[i] = values[i] * T.float32(2)

    @T.prim_func
    def turn(values: T.Buffer((4,), "float32"), more: T.Buffer((4,), "float32")):
        for i in range(4):
            values[i] = values[i] + more[3 - i]
"""


def _sibling(*last: str) -> str:
    """What is copied by one view, two_of reads by another; `last` are the names of the last two steps."""
    tensor = '{} = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([4]), R.dtype("float32"))'
    views = [f"{name} = {_VIEW.format('a')}" for name in "vw"]
    steps = {
        "fill": "Module.fill(b)",
        "read": 'y = R.call_tir(Module.two_of, (v,), out_ty=R.Tensor((4,), "float32"))',
    }
    lines = (_STORAGE, tensor.format("a"), *views, "Module.copy(x, w)", tensor.format("b"))
    return module(_TWO_OF, body(MAIN, *lines, *(steps[name] for name in last), "return y"))


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
        "flattened",
        "the source of a view is read behind a call in place on the view",
        _in_dataflow("R.flatten(n)", "R.negative(R.negative(@))"),
        np.ones(4),
        _APART,
    ),
    _seen(
        "two-reshapes",
        "two reshapes of one tensor, of which one is updated in place",
        _in_dataflow("R.reshape(n, R.shape([4]))", "R.reshape(@, R.shape([4]))"),
        np.ones(4),
        _APART,
    ),
    _seen(
        "there-and-back",
        "expand_dims and squeeze lead back to the tensor itself",
        _in_dataflow("R.squeeze(R.expand_dims(n, axis=0), axis=[0])", "R.flatten(@)"),
        np.ones(4),
        _APART,
    ),
    _seen(
        "operators-that-keep-all",
        "a concat of one tensor is a view of it",
        _in_dataflow("R.concat((n,), axis=0)", "R.negative(R.negative(@))"),
        np.ones(4),
        _APART,
    ),
    _seen(
        "parameter",
        "the caller's tensor is overwritten through a reshape, and read",
        _in_dataflow("R.reshape(@, R.shape([4]))", "R.negative(x)", bad="x", twin="n"),
        2 * _X + 1,
        np.ones(4),
    ),
    _seen(
        "two-views",
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
        "view-of-a-callee",
        "a function hands back a view of what it is given",
        _pair(
            PURE,
            "n = R.negative(x)",
            "v = Module.seen(n)",
            f"more = {inplace('add_one', 'v')}",
            "y = R.subtract(more, @)",
            "return y",
            bad="n",
            twin="x",
            functions=(_INNER,),
        ),
        np.ones(4),
        _APART,
    ),
    _seen(
        "view-in-a-callee",
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
        "lost-through-a-sibling",
        "what one view was written through is read through another, behind a tensor at the same place",
        (_sibling("fill", "read"), _sibling("read", "fill")),
        2 * _X,
        2 * _X,
        rule="SYM203",
    ),
    _seen(
        "given-twice",
        "a kernel in place reads, by a view of its operand, what it has overwritten",
        (_twice("turn", "R.flatten(n)"), _twice("add_to", "R.flatten(n)")),
        _X + _X[::-1],
        2 * _X,
        rule="SYM211",
        also=frozenset({"SYM210"}),
    ),
)
