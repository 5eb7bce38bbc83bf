"""Constants that are written."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.hostile.machine import Machine, Shows, floats
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import FLAG, FOUR, ONES_OF_FOUR, four_floats, function, inplace, packed


def _changes_from_call_to_call(*arguments: Any) -> Shows:
    """The second call of the program answers otherwise than the first, that of its twin alike."""

    def shows(bad: Machine, twin: Machine) -> bool:
        changes = []
        for machine in (bad, twin):
            one, other = (machine.run(*arguments, calls=calls) for calls in (1, 2))
            changes.append(not all(map(np.array_equal, one, other)))
        return changes == [True, False]

    return shows


def _constant(what: str, text: str, on_line: str, **more: Any) -> HostileProgram:
    shows = _changes_from_call_to_call(floats(4))
    return hostile(what, "SYM209", text, on_line=on_line, **{"shows": shows, **more})


_NEGATED = f"<<{ONES_OF_FOUR}|R.negative({ONES_OF_FOUR})>>"
_RESHAPE = "vm.builtin.reshape"

PROGRAMS: tuple[HostileProgram, ...] = (
    _constant(
        "one branch of an If yields a constant, which is updated behind it",
        four_floats(
            *("if yes:", f"    state: {FOUR} = <<{ONES_OF_FOUR}|R.multiply(x, x)>>"),
            *("else:", f"    state: {FOUR} = R.add(x, x)"),
            *("y = R.add(x, state)", "Module.add_one(state)", "return y"),
            more=f", yes: {FLAG}",
        ),
        "Module.add_one(state)",
        shows=_changes_from_call_to_call(floats(4), np.array(True)),
    ),
    _constant(
        "a function returns a constant, its caller updates the result",
        four_floats(
            *("s = Module.state(x)", "y = R.add(x, s)", "Module.add_one(s)", "return y"),
            functions=function(
                f"x: {FOUR}",
                *(f"kept = {_NEGATED}", "return kept"),
                result=FOUR,
                name="state",
                how="private=True, pure=False",
            ),
        ),
        "Module.add_one(s)",
    ),
    _constant(
        "a constant is the operand of an in-place call",
        four_floats(
            f"<<|n = R.negative({ONES_OF_FOUR})\n>>s = <<{inplace('add_one', ONES_OF_FOUR)}|"
            f"{inplace('add_one', 'n')}>>",
            *("y = R.add(x, s)", "return y"),
            how="",
        ),
        "R.call_tir_inplace",
    ),
    _constant(
        "a view of a view of a constant is doubled",
        four_floats(
            f"weights = {_NEGATED}",
            "square = " + packed(_RESHAPE, "weights, R.shape([2, 2])", 'R.Tensor((2, 2), "float32")'),
            f"flat = {packed(_RESHAPE, 'square, R.shape([4])')}",
            *("y = R.add(x, weights)", "Module.two(flat)", "return y"),
        ),
        "Module.two(flat)",
    ),
    _constant(
        "a builtin of TVM that works in place is given a constant",
        four_floats(
            'logits = <<R.const([[1.0, 2.0, 3.0, 4.0]], "float32")|R.reshape(R.negative(x), (1, 4))>>',
            "y = R.add(x, R.reshape(logits, (4,)))",
            "heat = R.prim_value(T.float64(2))",
            f"_ = {packed('vm.builtin.apply_softmax_with_temperature', 'logits, heat', 'R.Tuple()')}",
            "return y",
        ),
        "vm.builtin.apply_softmax",
    ),
    _constant(
        "a kernel stores to a constant; its twin hands pointers to a library, which may only read",
        four_floats(
            *(f"weights = {ONES_OF_FOUR}", "y = R.add(x, x)"),
            *("Module.<<copy(x, weights)|hand_on(weights, y)>>", "return y"),
            functions="""
    @T.prim_func
    def hand_on(left: T.Buffer((4,), "float32"), right: T.Buffer((4,), "float32")):
        T.evaluate(T.call_extern("int32", "add_four_floats", left.data, right.data))
""",
        ),
        "Module.copy",
        shows=None,
    ),
)
