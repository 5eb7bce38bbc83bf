"""Packed functions that keep a tensor whose memory is used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm

from tests.hostile.machine import Machine, floats, gives
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import FLAG, four_floats, packed, storage, tensor

_GET = "y = " + packed("hostile.get", "").replace('", ,', '",')
_FILL = "Module.fill(b)"


def _handed_out(*others: Any) -> Callable[[Machine, Machine], bool]:
    """What was kept is x; the program hands out something else."""

    def shows(bad: Machine, twin: Machine) -> bool:
        kept: list[Any] = []
        tvm.register_global_func("hostile.keep", kept.append, override=True)
        tvm.register_global_func("hostile.get", lambda: kept[-1], override=True)
        x = floats(4)
        return not gives(bad, x, x, *others) and gives(twin, x, x, *others)

    return shows


def _kept(
    what: str, offset: str, *lines: str, more: str = "", others: tuple[Any, ...] = ()
) -> HostileProgram:
    text = four_floats(
        f"s = {storage('256')}",
        f"a = {tensor('s', '4')}",
        "Module.copy(x, a)",
        "_ = " + packed("hostile.keep", "a", "R.Tuple"),
        f"placed = {tensor('s', '4', offset)}",
        "b = R.memory.ensure_zero_offset(placed)",
        *lines,
        more=more,
    )
    shows = _handed_out(*others)
    return hostile(what, "SYM904", text, severity="warning", on_line="hostile.keep", shows=shows)


PROGRAMS: tuple[HostileProgram, ...] = (
    _kept(
        "a packed function keeps a tensor, its storage is used again, another hands the tensor out",
        "<<0|64>>",
        *(_FILL, _GET, "return y"),
    ),
    _kept(
        "the storage is used again before the kept tensor is handed out, or behind that",
        "0",
        *(f"<<{_FILL}\n|>>{_GET}\nz = R.add(y, x)", f"<<return y|{_FILL}\nreturn x>>"),
    ),
    _kept(
        "one branch uses the storage of a kept tensor again",
        "<<0|64>>",
        *("if yes:", f"    {_FILL}", '    z: R.Tensor((4,), "float32") = x'),
        *("else:", '    z: R.Tensor((4,), "float32") = x', _GET, "return y"),
        more=f", yes: {FLAG}",
        others=(np.array(True),),
    ),
)
