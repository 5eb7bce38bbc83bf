"""Operands of in-place calls that are used later."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

from tests.hostile.four_floats import MAIN, PURE, TWO, body, inplace, module
from tests.hostile.machine import Machine, floats, gives
from tests.hostile.program import HostileProgram

_X = floats(4)


def _stale(what: str, bad: str, twin: str, **more: Any) -> HostileProgram:
    """`meant` and `given` are what the program and its twin would give if in-place calls made new memory."""
    meant, given, others = more.pop("meant", None), more.pop("given", None), more.pop("others", ())

    def shows(one: Machine, other: Machine) -> bool:
        tvm.register_global_func("hostile.add_one", _add_one, override=True)
        return not gives(one, meant, _X, *others) and gives(other, given, _X, *others)

    return HostileProgram(
        **{"shows": None if meant is None else shows, **more},
        what=what,
        module=bad,
        twin=twin,
        rule="SYM210",
    )


def _add_one(tensor: Any) -> Any:
    np.from_dlpack(tensor)[:] += 1
    return tensor


def _pair(head: str, *lines: str, bad: str, twin: str) -> tuple[str, str]:
    """The bodies with `bad` and `twin` in place of `@`."""
    return body(head, *(x.replace("@", bad) for x in lines)), body(
        head, *(x.replace("@", twin) for x in lines)
    )


_MORE = f"more = {inplace('add_one', 'n')}"
_FILLED = body(MAIN, "n = R.negative(x)", _MORE, "Module.fill(n)", "y = R.add(more, x)", "return y")
_FILLED_LAST = body(MAIN, "n = R.negative(x)", _MORE, "y = R.add(more, x)", "Module.fill(n)", "return y")
_PACKED = _pair(
    PURE,
    "n = R.negative(x)",
    'more = R.call_inplace_packed("hostile.add_one", n, inplace_indices=[0], '
    'ty_args=(R.Tensor((4,), "float32"),))',
    "y = R.subtract(more, @)",
    "return y",
    bad="n",
    twin="x",
)
_SHARED = body(TWO, "n = R.negative(x)", f"both = {inplace('two', 'n', '0, 0', 2)}", "return both")
_APART = body(TWO, "n = R.negative(x)", f"both = {inplace('add_to', 'n, x', '0, 1', 2)}", "return both")

PROGRAMS: tuple[HostileProgram, ...] = (
    _stale(
        "the operand is filled by its old name while the result is still needed",
        module(_FILLED),
        module(_FILLED_LAST),
        meant=np.ones(4),
        given=np.ones(4),
        on_line="Module.fill(n)",
    ),
    _stale(
        "R.call_inplace_packed overwrites what is read behind it",
        *map(module, _PACKED),
        meant=np.ones(4),
        given=1 - 2 * _X,
        on_line="R.subtract(more, n)",
    ),
    _stale(
        "two results are to lie in one operand, which TVM's check of well-formed modules refuses",
        module(_SHARED).replace("@I.ir_module", "@I.ir_module(check_well_formed=False)"),
        module(_APART),
        on_line="R.call_tir_inplace",
    ),
)
