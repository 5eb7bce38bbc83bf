"""Memory that is read, or returned, while nothing has written it: always, on some path, for some shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.hostile.machine import Machine, depends_on_storages, floats, gives, old_bytes
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import FLAG, SIXTEEN, VECTOR, N, fresh, function, kernel, module

_COPY = kernel("copy", VECTOR, "    b[i] = a[i]", a="n", b="n")
_FILL = kernel("fill", VECTOR, "    b[i] = T.float32(3)", b="n")
_X, _TRUE, _FALSE = floats(16), np.array(True), np.array(False)
_A = f"a = {fresh('16')}"


def _one_branch(bad: Machine, twin: Machine) -> bool:
    """The result is right on the branch that writes."""
    right = not depends_on_storages(bad, _X, _TRUE) and depends_on_storages(bad, _X, _FALSE)
    return right and not depends_on_storages(twin, _X, _FALSE)


def _no_elements(bad: Machine, twin: Machine) -> bool:
    """5 elements leave one to sum up, 4 leave none."""
    right = not depends_on_storages(bad, floats(5)) and depends_on_storages(bad, floats(4))
    return right and gives(twin, [0.0], floats(4))


def _main(*lines: str, kind: str = SIXTEEN, result: str = SIXTEEN, more: str = "") -> str:
    return function(f"x: {kind}{more}", *lines, result=result)


def _unwritten(what: str, *functions: str, gives_to: Any = None, **more: Any) -> HostileProgram:
    """`gives_to`: what the twin gives to x, where the program gives what storages held."""
    if gives_to is not None:
        more["shows"] = lambda bad, twin: depends_on_storages(bad, _X) and gives(twin, gives_to, _X)
    return hostile(what, "SYM208", module(_COPY, _FILL, *functions), **{"verdict": "always-invalid", **more})


PROGRAMS: tuple[HostileProgram, ...] = (
    _unwritten(
        "the kernel that fills a stands behind the one that reads it",
        _main(
            *(
                _A,
                f"b = {fresh('16')}",
                "Module.copy(<<a, b|x, a>>)",
                "Module.copy(<<x, a|a, b>>)",
                "return b",
            )
        ),
        on_line="Module.copy(a, b)",
        shows=old_bytes(_X),
    ),
    _unwritten(
        "each element is computed from what it held before; in the twin from its left neighbour",
        kernel(
            "scan",
            "for i in range(16):",
            "    b[i] = T.if_then_else(i > <<3|0>>, b[i - <<0|1>>], T.float32(0)) + a[i]",
            a="16",
            b="16",
        ),
        _main(_A, "Module.scan(x, a)", "return a"),
        on_line="Module.scan(x, a)",
        gives_to=np.cumsum(_X),
    ),
    _unwritten(
        "a kernel that fills a tensor from its end on stops before its first element",
        kernel("flip", "for i in range(<<15|16>>):", "    b[15 - i] = a[i]", a="16", b="16"),
        _main(_A, "Module.flip(x, a)", "return a"),
        on_line="return a",
        gives_to=_X[::-1],
    ),
    _unwritten(
        "a slice is taken of a tensor that nothing wrote; in the twin just that part was written",
        kernel("half", "for i in range(8):", "    b[i] = a[i]", a="16", b="16"),
        _main(
            *(_A, f"b = {fresh('16')}", "Module.half(x, <<b|a>>)"),
            "y = R.strided_slice(a, (R.prim_value(0),), (R.prim_value(0),), (R.prim_value(8),))",
            "return y",
            result='R.Tensor((8,), "float32")',
        ),
        on_line="y = R.strided_slice(",
        gives_to=_X[:8],
    ),
    _unwritten(
        "one branch writes the first element, all paths write the others",
        kernel("first", "b[0] = T.float32(1)", b="16"),
        kernel("others", "for i in range(15):", "    b[i + 1] = a[i + 1]", a="16", b="16"),
        _main(
            *(_A, "if c:", "    Module.first(a)", "    r = x"),
            *("else:", "    Module.<<others(x, a)|first(a)>>", "    r = x"),
            *("Module.others(x, a)", "return a"),
            more=f", c: {FLAG}",
        ),
        on_line="return a",
        shows=_one_branch,
    ),
    _unwritten(
        "a sum over the elements from the fifth on is set to 0 with the first of them, if there is one",
        kernel(
            "rest",
            *("<<T.evaluate(0)|b[0] = T.float32(0)>>", "for k in range(n - 4):"),
            *("    if k == 0:", "        b[0] = T.float32(0)", "    b[0] = b[0] + a[k + 4]"),
            a="n",
            b="1",
        ),
        _main(
            f"s = {fresh('1')}", "Module.rest(x, s)", "return s", kind=N, result='R.Tensor((1,), "float32")'
        ),
        verdict="runtime-check",
        on_line="return s",
        shows=_no_elements,
        severity="warning",
        counterexample={"n": 1},
    ),
    _unwritten(
        "a function returns a tensor that it has not written, and the caller reads it",
        function(
            f"x: {SIXTEEN}",
            *(f"t = {fresh('16')}", "Module.fill(<<x|t>>)", "return t"),
            result=SIXTEEN,
            name="made",
            how="private=True, pure=False",
        ),
        _main("t = Module.made(x)", "y = R.add(t, x)", "return y"),
        on_line="y = R.add(t, x)",
        shows=old_bytes(_X),
    ),
    _unwritten(
        "an If tests a tensor that nothing has filled",
        """
    @T.prim_func
    def decide(out: T.Buffer((), "bool")):
        out[()] = T.bool(True)
""",
        _main(
            *(f"c = {fresh('', 'bool')}", "<<_ = R.shape_of(c)|Module.decide(c)>>"),
            *("if c:", "    r = R.add(x, x)", "else:", "    r = R.multiply(x, x)", "return r"),
        ),
    ),
)
