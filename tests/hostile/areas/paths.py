"""Faults on one path through a function; the twins have the same pieces on paths that control cannot take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.hostile.any_length import COPY, MODULE, ONES, PLUS, plus, storage, tensor
from tests.hostile.machine import Machine, floats, gives
from tests.hostile.program import HostileProgram

_KERNELS = f"""{MODULE}{ONES}{COPY}{PLUS}
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
_V16, _N, _M = 'R.Tensor((16,), "float32")', 'R.Tensor(("n",), "float32")', 'R.Tensor(("m",), "float32")'
_FLAG = 'R.Tensor((), "bool")'
TRUE, FALSE = np.array(True), np.array(False)


def _function(params: str, *lines: str, before: str = "", result: str = _V16) -> str:
    """A module whose `main` takes the tensor x, and `params`."""
    body = "\n".join(f"        {line}" for text in lines for line in text.split("\n"))
    head = f"    @R.function(pure=False)\n    def main(x: {_V16}, {params}) -> {result}:\n"
    return f"{_KERNELS}\n{before}{head}{body}\n"


_SHARED = f"""storage = {storage("64")}
a = {tensor("storage")}
Module.copy(x, a)
b = {tensor("storage")}"""


def _if(condition: str, then: str, otherwise: str) -> str:
    inner = then.replace("\n", "\n    ")
    other = otherwise.replace("\n", "\n    ")
    return f"if {condition}:\n    {inner}\nelse:\n    {other}"


_OVERWRITE = f"Module.ones(b)\nu = {plus('b', 'x')}"
_READ, _INSTEAD = f"z = {plus('a', 'a')}", f"z = {plus('x', 'x')}"
_NOTHING = f"u = {plus('x', 'x')}"
_NEW_FLAG = 'R.builtin.alloc_tensor(R.shape([]), R.dtype("bool"), R.prim_value(0), R.str("global"))'
_BOTH = "R.call_tir(Module.both, ({}, {}), out_ty=R.Tensor((), 'bool'))".format


def _reuse(params: str, first: str, second: str, *setup: str, between: str = "", turned: bool = False) -> str:
    """Where `first` holds b overwrites a, and where `second` does (`turned`: does not) a is read."""
    middle = (between,) if between else ()
    write, read = (
        _if(first, _OVERWRITE, _NOTHING),
        _if(second, *((_INSTEAD, _READ) if turned else (_READ, _INSTEAD))),
    )
    return _function(params, *setup, _SHARED, write, *middle, read, "return z")


def _shown_by(bad_at: Sequence[Any], right_at: Sequence[Any]) -> Callable[[Machine, Machine], bool]:
    """The twin doubles x with the arguments `right_at`, the program does not with `bad_at`."""

    def shows(bad: Machine, twin: Machine) -> bool:
        x = floats(16)
        return gives(twin, 2 * x, x, *right_at) and gives(bad, [[2.0] * 16], x, *bad_at)

    return shows


def _overlap(
    what: str,
    module: str,
    twin: str,
    arguments: Sequence[Any],
    *,
    also_fine: Sequence[Any] | None = None,
    severity: str = "error",
) -> HostileProgram:
    return HostileProgram(
        what=what,
        module=module,
        twin=twin,
        rule="SYM203",
        severity=severity,
        verdict="always-invalid" if severity == "error" else "runtime-check",
        on_line="Module.ones(b)",
        shows=_shown_by(arguments, arguments if also_fine is None else also_fine),
    )


_TWO_FLAGS = f"c: {_FLAG}, d: {_FLAG}"
_LOCAL = "n = T.int64()"
_GT = "R.prim_value(n > {})".format

_GUARDED_SIDE = _function(
    f"t: {_N}, {_TWO_FLAGS}",
    _LOCAL,
    _if("c", f'_ = R.assert_op(n <= 4, [n], format="n")\nu = {plus("x", "x")}', f"u = {plus('x', 'x')}"),
    _if(
        "SECOND",
        f"storage = {storage('16')}\na = {tensor('storage', 'n')}\nModule.copy(t, a)\n{_INSTEAD}",
        _INSTEAD,
    ),
    "return z",
)
_GUARDED_SIDES = _function(
    f"t: {_N}, c: {_FLAG}",
    _LOCAL,
    _if(
        "c",
        f'_ = R.assert_op(n <= 4, [n], format="n")\nu = {plus("x", "x")}',
        f'_1 = R.assert_op(n <= MOST, [n], format="n")\nu = {plus("x", "x")}',
    ),
    f"storage = {storage('16')}\na = {tensor('storage', 'n')}\nModule.copy(t, a)",
    f"z = {plus('x', 'x')}\nreturn z",
)
_CHOSEN_STORAGE = _function(
    f"t: {_N}",
    _LOCAL,
    _if("R.prim_value(n <= MOST)", f"s = {storage('16')}", f"s = {storage('n * 4')}"),
    f"a = {tensor('s', 'n')}",
    "Module.copy(t, a)",
    f"z = {plus('x', 'x')}\nreturn z",
)
_CALLED = _function(
    'c: R.Prim("bool"), d: R.Prim("bool")',
    _SHARED,
    "e = Module.fill(b, c)",
    "z = Module.pick(a, x, SECOND)\nreturn z",
    before=f"""    @R.function(pure=False, private=True)
    def fill(p: {_V16}, f: R.Prim("bool")) -> {_V16}:
        if f:
            Module.ones(p)
            u = p
        else:
            u = p
        return u

    @R.function(pure=False, private=True)
    def pick(p: {_V16}, q: {_V16}, f: R.Prim("bool")) -> {_V16}:
        if f:
            z = {plus("p", "p")}
        else:
            z = {plus("q", "q")}
        return z

""",
)

PROGRAMS: tuple[HostileProgram, ...] = (
    _overlap(
        "the conditions are two fields of a tuple; in the twin the same field, under other names",
        _reuse(_TWO_FLAGS, "first", "second", "pair = (c, d)\nfirst = pair[0]\nsecond = pair[1]"),
        _reuse(
            _TWO_FLAGS,
            "first",
            "second",
            "pair = (c, d)\nfirst = pair[0]\nagain = pair[0]\nsecond = R.logical_not(again)",
        ),
        (TRUE, TRUE),
    ),
    *(
        _overlap(
            f"two kernels compute the conditions {how} from two flags; in the twin one does, from the same",
            _reuse(_TWO_FLAGS, "p", "q", compute.format("c", "c", "d", "d")),
            _reuse(_TWO_FLAGS, "p", "q", compute.format("c", "d", "c", "d"), turned=True),
            (TRUE, TRUE),
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
        _reuse(_TWO_FLAGS, "c", "f", f"f = {_NEW_FLAG}\nModule.opposite(d, f)"),
        _reuse(_TWO_FLAGS, "c", "f", f"f = {_NEW_FLAG}\nModule.opposite(c, f)"),
        (TRUE, FALSE),
    ),
    _overlap(
        "a kernel flips the condition between two Ifs that go opposite ways",
        _reuse(_TWO_FLAGS, "c", "opposite", between="Module.flip(c)\nopposite = R.logical_not(c)"),
        _reuse(_TWO_FLAGS, "c", "opposite", between="Module.flip(d)\nopposite = R.logical_not(c)"),
        (np.array(True), np.array(True)),
        severity="warning",
    ),
    _overlap(
        "a boolean scalar and another one; in the twin one and its negation",
        _reuse('c: R.Prim("bool"), d: R.Prim("bool")', "c", "d"),
        _reuse('c: R.Prim("bool"), d: R.Prim("bool")', "c", "R.prim_value(T.Not(c))"),
        (True, True),
    ),
    _overlap(
        "n <= m with m <= 4 meets n > 3, not n > 4",
        _reuse(
            f"t: {_N}, v: {_M}", "R.prim_value(T.And(n <= m, m <= 4))", _GT(3), f"{_LOCAL}\nm = T.int64()"
        ),
        _reuse(
            f"t: {_N}, v: {_M}", "R.prim_value(T.And(n <= m, m <= 4))", _GT(4), f"{_LOCAL}\nm = T.int64()"
        ),
        (floats(4), floats(4)),
    ),
    HostileProgram(
        what="one callee writes where its flag holds, another reads where its flag holds",
        module=_CALLED.replace("SECOND", "d"),
        twin=_CALLED.replace("SECOND", "R.prim_value(T.Not(c))"),
        rule="SYM203",
        verdict="always-invalid",
        on_line="Module.ones(p)",
        shows=_shown_by((True, True), (True, True)),
    ),
    HostileProgram(
        what="n is checked where c holds, and relied on where d does; in the twin where c does",
        module=_GUARDED_SIDE.replace("SECOND", "d"),
        twin=_GUARDED_SIDE.replace("SECOND", "c"),
        rule="SYM101",
        verdict="runtime-check",
        counterexample={"n": 5},
    ),
    HostileProgram(
        what="n is checked in both branches, in one of them to be at most 6; the twin checks for 4 in both",
        module=_GUARDED_SIDES.replace("MOST", "6"),
        twin=_GUARDED_SIDES.replace("MOST", "4"),
        rule="SYM101",
        verdict="runtime-check",
        counterexample={"n": 5},
    ),
    HostileProgram(
        what="an If chooses the small storage for one n too many",
        module=_CHOSEN_STORAGE.replace("MOST", "5"),
        twin=_CHOSEN_STORAGE.replace("MOST", "4"),
        rule="SYM101",
        counterexample={"n": 5},
    ),
)
