"""Packed functions that keep a tensor whose memory is used again."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

from tests.hostile.four_floats import IF, MAIN, body, module, packed
from tests.hostile.machine import Machine, floats, gives
from tests.hostile.program import HostileProgram

_STORAGE = 's = R.memory.alloc_storage(R.shape([256]), R.prim_value(0), R.str("global"), R.dtype("uint8"))'
_KEEP = "_ = " + packed("hostile.keep", "a", "R.Tuple")
_GET = "y = " + packed("hostile.get", "", 'R.Tensor((4,), "float32")').replace('", ,', '",')
_B = "b = R.memory.ensure_zero_offset(placed)"
_X = floats(4)


def _tensor(name: str, offset: int) -> str:
    return f'{name} = R.memory.alloc_tensor(s, R.prim_value({offset}), R.shape([4]), R.dtype("float32"))'


def _in_state(bad: Machine, twin: Machine, *others: Any) -> bool:
    """What was kept is x; the program hands out something else."""
    kept: list[Any] = []
    tvm.register_global_func("hostile.keep", kept.append, override=True)
    tvm.register_global_func("hostile.get", lambda: kept[-1], override=True)
    return not gives(bad, _X, _X, *others) and gives(twin, _X, _X, *others)


def _lines(offset: int) -> tuple[str, ...]:
    return (_STORAGE, _tensor("a", 0), "Module.copy(x, a)", _KEEP, _tensor("placed", offset), _B)


_BRANCHED = (
    "if yes:",
    "    Module.fill(b)",
    '    z: R.Tensor((4,), "float32") = x',
    "else:",
    '    z: R.Tensor((4,), "float32") = x',
)

PROGRAMS: tuple[HostileProgram, ...] = (
    HostileProgram(
        what="a packed function keeps a tensor, its storage is used again, another hands the tensor out",
        module=module(body(MAIN, *_lines(0), "Module.fill(b)", _GET, "return y")),
        twin=module(body(MAIN, *_lines(64), "Module.fill(b)", _GET, "return y")),
        rule="SYM904",
        severity="warning",
        on_line="hostile.keep",
        shows=_in_state,
    ),
    HostileProgram(
        what="the storage is used again before the kept tensor is handed out, or behind that",
        module=module(body(MAIN, *_lines(0), "Module.fill(b)", _GET, "z = R.add(y, x)", "return y")),
        twin=module(body(MAIN, *_lines(0), _GET, "z = R.add(y, x)", "Module.fill(b)", "return x")),
        rule="SYM904",
        severity="warning",
        on_line="hostile.keep",
        shows=_in_state,
    ),
    HostileProgram(
        what="one branch uses the storage of a kept tensor again",
        module=module(body(IF, *_lines(0), *_BRANCHED, _GET, "return y")),
        twin=module(body(IF, *_lines(64), *_BRANCHED, _GET, "return y")),
        rule="SYM904",
        severity="warning",
        on_line="hostile.keep",
        shows=lambda bad, twin: _in_state(bad, twin, np.array(True)),
    ),
)
