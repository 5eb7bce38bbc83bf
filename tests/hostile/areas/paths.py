"""Faults on one path through a function; the twins have the same pieces on paths that control cannot take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.hostile.machine import Machine, Shows, floats, gives
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import COPY, FLAG, ONES, PLUS, SIXTEEN, N, function, module, plus, storage, tensor

_KERNELS = f"""{ONES}{COPY}{PLUS}
    @T.prim_func
    def flip(flag: T.Buffer((), "bool")):
        flag[()] = not flag[()]

    @T.prim_func
    def opposite(flag: T.Buffer((), "bool"), out: T.Buffer((), "bool")):
        out[()] = not flag[()]

    @T.prim_func
    def both(one: T.Buffer((), "bool"), other: T.Buffer((), "bool"), out: T.Buffer((), "bool")):
        out[()] = one[()] and other[()]
"""
TRUE, FALSE = np.array(True), np.array(False)


def _function(parameters: str, *lines: str, before: str = "") -> str:
    """A module whose `main` takes the tensor x, and `parameters`, and returns z."""
    main = function(f"x: {SIXTEEN}, {parameters}", *lines, "return z", result=SIXTEEN)
    return module(_KERNELS, before, main)


_SHARED = f"""storage = {storage("64")}
a = {tensor("storage")}
Module.copy(x, a)
b = {tensor("storage")}"""


def _if(condition: str, then: str, otherwise: str) -> str:
    inner, other = (side.replace("\n", "\n    ") for side in (then, otherwise))
    return f"if {condition}:\n    {inner}\nelse:\n    {other}"


_OVERWRITE = f"Module.ones(b)\nu = {plus('b', 'x')}"
_READ, _INSTEAD = f"z = {plus('a', 'a')}", f"z = {plus('x', 'x')}"
_NOTHING = f"u = {plus('x', 'x')}"
_NEW_FLAG = 'R.builtin.alloc_tensor(R.shape([]), R.dtype("bool"), R.prim_value(0), R.str("global"))'
_BOTH = "R.call_tir(Module.both, ({}, {}), out_ty=R.Tensor((), 'bool'))".format


def _shown_by(*arguments: Any) -> Shows:
    """The twin doubles x, the program does not."""

    def shows(bad: Machine, twin: Machine) -> bool:
        x = floats(16)
        return gives(twin, 2 * x, x, *arguments) and gives(bad, [[2.0] * 16], x, *arguments)

    return shows


def _overlap(
    what: str,
    parameters: str,
    first: str,
    second: str,
    *setup: str,
    at: Sequence[Any],
    between: str = "",
    turned: bool = False,
    severity: str = "error",
) -> HostileProgram:
    """Where `first` holds b overwrites a, where `second` does a is read; `turned`: in the twin where not."""
    middle = (between,) if between else ()
    sides = (f"<<{_READ}|{_INSTEAD}>>", f"<<{_INSTEAD}|{_READ}>>") if turned else (_READ, _INSTEAD)
    write, read = _if(first, _OVERWRITE, _NOTHING), _if(second, *sides)
    return hostile(
        what,
        "SYM203",
        _function(parameters, *setup, _SHARED, write, *middle, read),
        severity=severity,
        verdict="always-invalid" if severity == "error" else "runtime-check",
        on_line="Module.ones(b)",
        shows=_shown_by(*at),
    )


def _bounds(what: str, text: str, verdict: str | None = "runtime-check") -> HostileProgram:
    """16 bytes for n floats, where n may be 5."""
    return hostile(what, "SYM101", text, verdict=verdict, counterexample={"n": 5})


_TWO_FLAGS, _TWO_SCALARS = f"c: {FLAG}, d: {FLAG}", 'c: R.Prim("bool"), d: R.Prim("bool")'
_CHECKED = '_{} = R.assert_op(n <= {}, [n], format="n")\n'.format
_PLACED = f"storage = {storage('16')}\na = {tensor('storage', 'n')}\nModule.copy(t, a)"
_CALLED = "".join(
    function(
        f"{parameters}, f: R.Prim('bool')",
        *lines,
        result=SIXTEEN,
        name=name,
        how="pure=False, private=True",
    )
    for name, parameters, lines in (
        ("fill", f"p: {SIXTEEN}", (_if("f", "Module.ones(p)\nu = p", "u = p"), "return u")),
        (
            "pick",
            f"p: {SIXTEEN}, q: {SIXTEEN}",
            (_if("f", f"z = {plus('p', 'p')}", f"z = {plus('q', 'q')}"), "return z"),
        ),
    )
)

PROGRAMS: tuple[HostileProgram, ...] = (
    _overlap(
        "the conditions are two fields of a tuple; in the twin the same field, under other names",
        _TWO_FLAGS,
        "first",
        "second",
        "pair = (c, d)\nfirst = pair[0]",
        "<<second = pair[1]|again = pair[0]\nsecond = R.logical_not(again)>>",
        at=(TRUE, TRUE),
    ),
    *(
        _overlap(
            f"two kernels compute the conditions {how} from two flags; in the twin one does, from the same",
            _TWO_FLAGS,
            "p",
            "q",
            compute.format("c", "<<c|d>>", "<<d|c>>", "d"),
            turned=True,
            at=(TRUE, TRUE),
        )
        for how, compute in {
            "anew": f"p = {_BOTH('{}', '{}')}\nq = {_BOTH('{}', '{}')}",
            "into memory": f"p = {_NEW_FLAG}\nModule.both({{}}, {{}}, p)"
            f"\nq = {_NEW_FLAG}\nModule.both({{}}, {{}}, q)",
            "by operators": "p = R.logical_and({}, {})\nq = R.logical_and({}, {})",
        }.items()
    ),
    _overlap(
        "a kernel negates another flag than the first If tests; in the twin the same",
        _TWO_FLAGS,
        "c",
        "f",
        f"f = {_NEW_FLAG}\nModule.opposite(<<d|c>>, f)",
        at=(TRUE, FALSE),
    ),
    _overlap(
        "a kernel flips the condition between two Ifs that go opposite ways",
        _TWO_FLAGS,
        "c",
        "opposite",
        between="Module.flip(<<c|d>>)\nopposite = R.logical_not(c)",
        at=(TRUE, np.array(True)),
        severity="warning",
    ),
    _overlap(
        "a boolean scalar and another one; in the twin one and its negation",
        _TWO_SCALARS,
        "c",
        "<<d|R.prim_value(T.Not(c))>>",
        at=(True, True),
    ),
    _overlap(
        "n <= m with m <= 4 meets n > 3, not n > 4",
        f't: {N}, v: R.Tensor(("m",), "float32")',
        "R.prim_value(T.And(n <= m, m <= 4))",
        "R.prim_value(n > <<3|4>>)",
        at=(floats(4), floats(4)),
    ),
    hostile(
        "one callee writes where its flag holds, another reads where its flag holds",
        "SYM203",
        _function(
            _TWO_SCALARS,
            _SHARED,
            "e = Module.fill(b, c)",
            "z = Module.pick(a, x, <<d|R.prim_value(T.Not(c))>>)",
            before=_CALLED,
        ),
        verdict="always-invalid",
        on_line="Module.ones(p)",
        shows=_shown_by(True, True),
    ),
    _bounds(
        "n is checked where c holds, and relied on where d does; in the twin where c does",
        _function(
            f"t: {N}, {_TWO_FLAGS}",
            _if("c", _CHECKED("", 4) + _NOTHING, _NOTHING),
            _if("<<d|c>>", f"{_PLACED}\n{_INSTEAD}", _INSTEAD),
        ),
    ),
    _bounds(
        "n is checked in both branches, in one of them to be at most 6; the twin checks for 4 in both",
        _function(
            f"t: {N}, c: {FLAG}",
            _if("c", _CHECKED("", 4) + _NOTHING, _CHECKED("1", "<<6|4>>") + _NOTHING),
            f"{_PLACED}\n{_INSTEAD}",
        ),
    ),
    _bounds(
        "an If chooses the small storage for one n too many",
        _function(
            f"t: {N}",
            _if("R.prim_value(n <= <<5|4>>)", f"s = {storage('16')}", f"s = {storage('n * 4')}"),
            f"a = {tensor('s', 'n')}\nModule.copy(t, a)\n{_INSTEAD}",
        ),
        None,
    ),
)
