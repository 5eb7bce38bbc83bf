"""Memory across functions: storages as arguments and results, order inside a callee, recursion."""

from __future__ import annotations

from tests.hostile.machine import Machine, floats, gives, refused
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import (
    COPY,
    FLAG,
    ONES,
    PLUS,
    SIXTEEN,
    N,
    function,
    kernel,
    module,
    plus,
    storage,
    tensor,
)


def _called(name: str, parameters: str, *lines: str, result: str = SIXTEEN) -> str:
    return function(parameters, *lines, result=result, name=name, how="pure=False, private=True")


def _text(*functions: str) -> str:
    return module(ONES, COPY, PLUS, *functions)


def _adds_ones(bad: Machine, twin: Machine) -> bool:
    return gives(twin, [floats(16) + 2], floats(16)) and gives(bad, [[3.0] * 16], floats(16))


def _either(name: str, deep: str) -> str:
    """Where `more` holds t is added to what the inner call gives, elsewhere to itself."""
    return f"""if more:
    {deep}
    y = {plus(name, "deep")}
else:
    y = {plus(name, name)}
return y"""


PROGRAMS: tuple[HostileProgram, ...] = (
    hostile(
        "a callee places n floats on a storage of 64 bytes that it is handed",
        "SYM101",
        _text(
            _called(
                "helper",
                f"s: R.Object, x: {N}",
                *(f"t = {tensor('s', 'n')}", "Module.copy(x, t)", f"y = {plus('t', 'x', 'n')}", "return y"),
                result=N,
            ),
            function(
                'x: R.Tensor(("m",), "float32")',
                *(f"storage = {storage('<<64|m * 4>>')}", "z = Module.helper(storage, x)", "return z"),
                result='R.Tensor(("m",), "float32")',
            ),
        ),
        verdict="runtime-check",
        counterexample={"m": 17},
        on_line="t = R.memory.alloc_tensor",
    ),
    hostile(
        "a storage comes out of a tuple, and goes into another one, to be written on",
        "SYM203",
        _text(
            _called(
                "open",
                f"x: {SIXTEEN}",
                *(f"s = {storage('64')}", f"r = {storage('64')}", f"t = {tensor('s')}"),
                *("Module.copy(x, t)", "return (s, t, r)"),
                result=f"R.Tuple(R.Object, {SIXTEEN}, R.Object)",
            ),
            _called(
                "write",
                f"pair: R.Tuple({SIXTEEN}, R.Object)",
                *("s = pair[1]", f"t = {tensor('s')}", "Module.ones(t)", f"y = {plus('t', 't')}", "return y"),
            ),
            function(
                f"x: {SIXTEEN}",
                *("opened = Module.open(x)", "s = opened[<<0|2>>]", "t = opened[1]", "pair = (t, s)"),
                *("y = Module.write(pair)", f"z = {plus('t', 'y')}", "return z"),
                result=SIXTEEN,
            ),
        ),
        verdict="always-invalid",
        on_line="Module.ones(t)",
        shows=_adds_ones,
    ),
    hostile(
        "each call of a recursion writes where its caller keeps what it reads afterwards",
        "SYM203",
        _text(
            _called(
                "descend",
                f"s: R.Object, x: {SIXTEEN}, more: {FLAG}, last: {FLAG}",
                *(f"<<|fresh = {storage('64')}\n>>t = {tensor('<<s|fresh>>')}", "Module.copy(x, t)"),
                _either("t", f"r = {plus('x', 'x')}\n    deep = Module.descend(s, r, last, last)"),
            ),
            function(
                f"x: {SIXTEEN}, more: {FLAG}, last: {FLAG}",
                *(f"storage = {storage('64')}", "z = Module.descend(storage, x, more, last)", "return z"),
                result=SIXTEEN,
            ),
        ),
        verdict="always-invalid",
        on_line="Module.copy(x, t)",
        also=frozenset({"SYM904"}),
    ),
    # from the fifth call on a tensor lies where that of the first lies
    hostile(
        "the sixth call of a recursion writes where the first one keeps what it reads afterwards",
        "SYM904",
        _text(
            _called(
                "descend",
                f's: R.Object, a: R.Shape(["k"]), x: {SIXTEEN}, more: {FLAG}',
                f"<<|fresh = {storage('320')}\n>>t = {tensor('<<s|fresh>>', offset='k % 5 * 64')}",
                "Module.copy(x, t)",
                _either("t", "deep = Module.descend(s, R.shape([k + 1]), x, more)"),
            ),
            function(
                f"x: {SIXTEEN}, more: {FLAG}",
                *(f"storage = {storage('320')}", "z = Module.descend(storage, R.shape([0]), x, more)"),
                "return z",
                result=SIXTEEN,
            ),
        ),
        severity="warning",
    ),
    hostile(
        "a packed function is given a storage, and may write anywhere on it",
        "SYM904",
        _text(
            function(
                f"x: {SIXTEEN}",
                *(f"storage = {storage('128')}", f"spare = {storage('128')}", f"kept = {tensor('storage')}"),
                "Module.copy(x, kept)",
                'gone = R.call_packed("library.scribble", <<storage|spare>>, ty_args=(R.Tuple(),))',
                *(f"z = {plus('kept', 'kept')}", "return z"),
                result=SIXTEEN,
            )
        ),
        severity="warning",
    ),
    hostile(
        "a callee returns a tensor at byte 64, which goes to a kernel that takes none but at byte 0",
        "SYM303",
        _text(
            kernel("plain", "for i in range(16):", "    b[i] = a[i]", a="16", b="16"),
            _called(
                "pair",
                f"x: {SIXTEEN}",
                *(f"s = {storage('128')}", f"a = {tensor('s')}", f"b = {tensor('s', offset='64')}"),
                *("Module.copy(x, a)", "Module.copy(x, b)", "return (a, b)"),
                result=f"R.Tuple({SIXTEEN}, {SIXTEEN})",
            ),
            function(
                f"x: {SIXTEEN}",
                *("both = Module.pair(x)", "b = both[<<1|0>>]"),
                'y = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0))',
                *("Module.plain(b, y)", "return y"),
                result=SIXTEEN,
            ),
        ),
        on_line="Module.plain(b, y)",
        shows=refused("byte_offset", [floats(16)], floats(16)),
    ),
)
