"""Constants that are written."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.hostile.four_floats import IF, MAIN, ONES, PURE, body, inplace, module, packed, private
from tests.hostile.machine import Machine, floats
from tests.hostile.program import HostileProgram


def _changes_from_call_to_call(bad: Machine, twin: Machine, *arguments: Any) -> bool:
    """The second call of the program answers otherwise than the first, that of its twin alike."""
    changes = []
    for machine in (bad, twin):
        one, other = (machine.run(*arguments, calls=calls) for calls in (1, 2))
        changes.append(not all(map(np.array_equal, one, other)))
    return changes == [True, False]


def _on_four_floats(bad: Machine, twin: Machine) -> bool:
    return _changes_from_call_to_call(bad, twin, floats(4))


def _constant(what: str, bad: str, twin: str, **more: Any) -> HostileProgram:
    return HostileProgram(
        **{"shows": _on_four_floats, **more}, what=what, module=bad, twin=twin, rule="SYM209"
    )


_BRANCH = body(
    IF,
    "if yes:",
    f'    state: R.Tensor((4,), "float32") = {ONES}',
    "else:",
    '    state: R.Tensor((4,), "float32") = R.add(x, x)',
    "y = R.add(x, state)",
    "Module.add_one(state)",
    "return y",
)
_STATE = private(MAIN, "state")
_UPDATED = body(MAIN, "s = Module.state(x)", "y = R.add(x, s)", "Module.add_one(s)", "return y")
_VIEW = body(
    MAIN,
    f"weights = {ONES}",
    "square = " + packed("vm.builtin.reshape", "weights, R.shape([2, 2])", 'R.Tensor((2, 2), "float32")'),
    f"flat = {packed('vm.builtin.reshape', 'square, R.shape([4])')}",
    "y = R.add(x, weights)",
    "Module.two(flat)",
    "return y",
)
_BUILTIN = body(
    MAIN,
    'logits = R.const([[1.0, 2.0, 3.0, 4.0]], "float32")',
    "y = R.add(x, R.reshape(logits, (4,)))",
    "heat = R.prim_value(T.float64(2))",
    f"_ = {packed('vm.builtin.apply_softmax_with_temperature', 'logits, heat', 'R.Tuple()')}",
    "return y",
)
_LIBRARY = """
    @T.prim_func
    def hand_on(left: T.Buffer((4,), "float32"), right: T.Buffer((4,), "float32")):
        T.evaluate(T.call_extern("int32", "add_four_floats", left.data, right.data))
"""

PROGRAMS: tuple[HostileProgram, ...] = (
    _constant(
        "one branch of an If yields a constant, which is updated behind it",
        module(_BRANCH),
        module(_BRANCH.replace(f"= {ONES}", "= R.multiply(x, x)")),
        on_line="Module.add_one(state)",
        shows=lambda bad, twin: _changes_from_call_to_call(bad, twin, floats(4), np.array(True)),
    ),
    _constant(
        "a function returns a constant, its caller updates the result",
        module(body(_STATE, f"kept = {ONES}", "return kept"), _UPDATED),
        module(body(_STATE, f"kept = R.negative({ONES})", "return kept"), _UPDATED),
        on_line="Module.add_one(s)",
    ),
    _constant(
        "a constant is the operand of an in-place call",
        module(body(PURE, f"s = {inplace('add_one', ONES)}", "y = R.add(x, s)", "return y")),
        module(
            body(
                PURE,
                f"n = R.negative({ONES})",
                f"s = {inplace('add_one', 'n')}",
                "y = R.add(x, s)",
                "return y",
            )
        ),
        on_line="R.call_tir_inplace",
    ),
    _constant(
        "a view of a view of a constant is doubled",
        module(_VIEW),
        module(_VIEW.replace(ONES, f"R.negative({ONES})")),
        on_line="Module.two(flat)",
    ),
    _constant(
        "a builtin of TVM that works in place is given a constant",
        module(_BUILTIN),
        module(
            _BUILTIN.replace(
                '= R.const([[1.0, 2.0, 3.0, 4.0]], "float32")', "= R.reshape(R.negative(x), (1, 4))"
            )
        ),
        on_line="vm.builtin.apply_softmax",
    ),
    _constant(
        "a kernel stores to a constant; its twin hands pointers to a library, which may only read",
        module(body(MAIN, f"weights = {ONES}", "y = R.add(x, x)", "Module.copy(x, weights)", "return y")),
        module(
            _LIBRARY,
            body(MAIN, f"weights = {ONES}", "y = R.add(x, x)", "Module.hand_on(weights, y)", "return y"),
        ),
        on_line="Module.copy",
        shows=None,
    ),
)
