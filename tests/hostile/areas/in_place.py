"""Operands of in-place calls that are used later."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

from tests.hostile.machine import Machine, Shows, differs, floats
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import FOUR, four_floats, inplace

_X = floats(4)


def _add_one(tensor: Any) -> Any:
    np.from_dlpack(tensor)[:] += 1
    return tensor


def _shown(given: Any) -> Shows:
    """If in-place calls made new memory, the program would give ones, and its twin what is `given`."""

    def shows(bad: Machine, twin: Machine) -> bool:
        tvm.register_global_func("hostile.add_one", _add_one, override=True)
        return differs(np.ones(4), given, _X)(bad, twin)

    return shows


_PACKED = f'R.call_inplace_packed("hostile.add_one", n, inplace_indices=[0], ty_args=({FOUR},))'

PROGRAMS: tuple[HostileProgram, ...] = (
    hostile(
        "the operand is filled by its old name while the result is still needed",
        "SYM210",
        four_floats(
            "n = R.negative(x)",
            f"more = {inplace('add_one', 'n')}",
            "<<Module.fill(n)\n|>>y = R.add(more, x)<<|\nModule.fill(n)>>",
            "return y",
        ),
        on_line="Module.fill(n)",
        shows=_shown(np.ones(4)),
    ),
    hostile(
        "R.call_inplace_packed overwrites what is read behind it",
        "SYM210",
        four_floats(
            "n = R.negative(x)", f"more = {_PACKED}", "y = R.subtract(more, <<n|x>>)", "return y", how=""
        ),
        on_line="R.subtract(more, n)",
        shows=_shown(1 - 2 * _X),
    ),
    hostile(
        "two results are to lie in one operand, which TVM's check of well-formed modules refuses",
        "SYM210",
        four_floats(
            "n = R.negative(x)",
            f"both = <<{inplace('two', 'n', '0, 0', 2)}|{inplace('add_to', 'n, x', '0, 1', 2)}>>",
            "return both",
            result=f"R.Tuple({FOUR}, {FOUR})",
            how="",
        ).replace("@I.ir_module", "@I.ir_module<<(check_well_formed=False)|>>"),
        on_line="R.call_tir_inplace",
    ),
)
