"""Sizes that can be negative: nobody gets such memory, so that what lies there is right where it is there."""

from __future__ import annotations

from typing import Any

from tests.hostile.machine import floats, refused
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import COPY, SIXTEEN, TWICE, N, function, kernel, module, storage, tensor


def _reserved(extent: str) -> str:
    """`extent` rows of eight floats on a storage of half their size."""
    return module(
        kernel("ones", "for i, j in T.grid(n, 8):", "    a[i, j] = T.float32(1)", a="n, 8"),
        function(
            'x: R.Tensor(("m",), "float32"), k: R.Prim("int64")',
            *(f"s = {storage(f'({extent}) * <<16|64>>')}", f"a = {tensor('s', f'{extent}, 8')}"),
            *("_ = Module.ones(a)", "return a"),
            result='R.Tensor(dtype="float32", ndim=2)',
        ),
    )


def _placed(parameter: str, *lines: str, checked: str) -> str:
    """16 floats are copied to byte 64*k + 64 of a storage, and back; `checked` holds for k."""
    return module(
        *(COPY, TWICE),
        function(
            f"x: {SIXTEEN}, {parameter}",
            *("k = T.int64()", *lines, f'_ = R.assert_op(R.prim_value({checked}), format="k")'),
            *(f"s = {storage('4096')}", f"t = {tensor('s', offset='64*k + 64')}", "_1 = Module.copy(x, t)"),
            f"y = R.call_tir(Module.twice, (t,), out_ty={SIXTEEN})",
            "return y",
        ),
    )


def _negative(
    what: str, parameter: str, *lines: str, checked: str = "k <= 62", **more: Any
) -> HostileProgram:
    return hostile(what, "SYM102", _placed(parameter, *lines, checked=checked), **more)


_NUMBER, _TOLD = 'number: R.Tensor((1,), "int64")', "told = R.tensor_to_shape(number)"
_SIGNED = {
    "number-in-a-tensor": (_NUMBER, _TOLD, "known = R.match_cast(told, R.Shape([k]))"),
    "number-behind-names": (
        *(_NUMBER, _TOLD, "pair = (told, x)", "again = pair[0]"),
        "known = R.match_cast(again, R.Shape([k]))",
    ),
    "shape-parameter": ('given: R.Shape(["k"])',),
}


PROGRAMS: tuple[HostileProgram, ...] = (
    *(
        hostile(
            f"half of what {extent} rows take is reserved; the twin has twice as much",
            "SYM101",
            _reserved(extent),
            on_line="alloc_tensor",
            shows=refused("allocate", floats(2044, 8) * 0 + 1, floats(2048), 2044),
        )
        for extent in ("k", "m - 4")
    ),
    *(
        _negative(
            f"{kind}: it may be negative, and places a tensor in front of its storage; the twin checks that",
            *lines,
            checked="<<k <= 62|T.And(k <= 62, k >= 0)>>",
            on_line="alloc_tensor",
            counterexample={"k": -2},
        )
        for kind, lines in _SIGNED.items()
    ),
    _negative(
        "the twin takes the number from the shape of a tensor, which is never negative",
        'number: R.Tensor(<<(1,), "int64"|ndim=1, dtype="int64">>)',
        f"<<{_TOLD}|told = R.shape_of(number)\nnamed = told>>",
        "known = R.match_cast(<<told|named>>, R.Shape([k]))",
    ),
    _negative(
        "the twin is given a tensor of as many elements, which TVM compares",
        'given: R.Shape(["k"])<<|, of: R.Tensor(("k",), "float32")>>',
    ),
    hostile(
        "numbers may be negative, two of them make a size; what is shown are plain ones all the same",
        "SYM101",
        module(
            function(
                'given: R.Shape(["m", "n"])',
                *(f"s = {storage('m * n<<| * 2>>')}", f"t = {tensor('s', 'm, n', dtype='float16')}"),
                "return t",
            )
        ),
        on_line="alloc_tensor",
        counterexample={"m": 1, "n": 1},
    ),
    *(
        hostile(
            f"{kind}: a size without exact form: whether a tensor fits cannot be said, which is no note",
            "SYM101",
            module(
                COPY,
                function(
                    f"x: {N}",
                    *(f"s = {storage(f'<<{size}|n * 4>>')}", f"t = {tensor('s', 'n')}"),
                    *("_ = Module.copy(x, t)", "return x"),
                ),
            ),
            severity="warning",
            verdict="runtime-check",
            on_line="alloc_tensor",
        )
        for kind, size in {
            "power-of-two": "T.shift_left(T.int64(1), n)",
            "bits-of-a-size": "T.bitwise_and(n * 4, n * 8)",
            "size-by-floats": 'T.cast(T.pow(T.cast(n, "float32"), T.float32(2)), "int64")',
        }.items()
    ),
)
