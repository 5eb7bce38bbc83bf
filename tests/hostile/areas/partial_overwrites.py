"""Overwrites of a part of a tensor, of which another part is read later, or the same one."""

from __future__ import annotations

import numpy as np

from tests.hostile.machine import differs, floats
from tests.hostile.program import hostile
from tests.hostile.texts import FOUR, SIXTEEN, fresh, function, kernel, module, storage, tensor

_MEANT = np.tile(floats(4) * 3, 4)


def _text(first: str, more: str = "") -> str:
    """16 elements of 64 are written anew; then those from `first` on are read."""
    return module(
        kernel("fill", "for i in range(64):", "    b[i] = a[i % 4]", a="4", b="64"),
        kernel("double", "for i in range(16):", "    b[i] = a[i % 4] * T.float32(2)", a="4", b="16"),
        kernel("part", "for i in range(16):", f"    b[i] = a[i + {first}]", a="64", b="16"),
        kernel("sum", "for i in range(16):", "    c[i] = a[i] + b[i]", a="16", b="16", c="16"),
        kernel("copy", "for i in range(64):", "    b[i] = a[i]", a="64", b="64"),
        function(
            f"x: {FOUR}",
            f"storage = {storage('256')}",
            f"whole = {tensor('storage', '64')}",
            "Module.fill(x, whole)",
            f"head = {tensor('storage')}",
            "Module.double(x, head)",
            f"a = {fresh('16')}",
            "Module.part(whole, a)",
            f"{more}y = {fresh('16')}",
            "Module.sum(a, head, y)",
            "return y",
            result=SIXTEEN,
        ),
    )


PROGRAMS = (
    hostile(
        "elements 12 to 27 are read of a tensor whose first 16 were overwritten; the twin reads others",
        "SYM203",
        _text("<<12|16>>"),
        verdict="always-invalid",
        shows=differs(_MEANT, _MEANT, floats(4)),
    ),
    hostile(
        "the first reader takes what is left, the second one takes all; the twin has the first one only",
        "SYM203",
        _text("<<16|48>>", f"<<b = {fresh('64')}\nModule.copy(whole, b)\n|>>"),
        verdict="always-invalid",
    ),
)
