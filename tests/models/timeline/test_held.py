"""A timeline says what a call holds: every construct, against a counting allocator."""

from __future__ import annotations

import pytest
import tvm

from tests.compile_once import compile_kernels_once
from tests.models.measure import compiler, load
from tests.models.timeline.held import faults, sides
from tests.models.timeline.programs import BRANCHING, CALLED, CALLED_BRANCHING, FLAGS, STRAIGHT, text
from tests.scale import part

BINDINGS = ({"n": 3}, {"n": 64})


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="measuring needs a C++ compiler")
@pytest.mark.parametrize("flags", [(), FLAGS], ids=["straight", "branching"])
def test_no_more_and_no_less_is_held_than_is_said(flags: tuple[str, ...]) -> None:
    load()
    compile_kernels_once()
    every, called = (BRANCHING, CALLED_BRANCHING) if flags else (STRAIGHT, CALLED)
    mains = dict(part(every.items(), 2))
    module = tvm.script.from_source(text(called, mains, flags))
    called_at = dict.fromkeys(mains, BINDINGS)
    found = [fault for side in sides(module) for fault in faults(side, module, called_at, flags)]
    wrong = [fault for fault in found if fault is not None]
    assert len(found) >= 3 * 2 * len(mains)
    assert not wrong, "\n".join(wrong)
