"""Kernels that leave their buffers, that ask for layouts no tensor has, and memory on no device."""

from __future__ import annotations

from typing import Any

from tests.hostile.machine import differs, floats, refused
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import SIXTEEN, fresh, function, kernel, module, storage, tensor

_PASSES = "for i in range(16):"
_KEEP = kernel("keep", _PASSES, "    b[i] = a[i]", a="16", b="16", anywhere="b")
_JOIN = kernel("join", _PASSES, "    c[i] = a[i] + b[i]", a="16", b="16", c="16", anywhere="b")
_X = floats(16)


def _stores(
    what: str, *lines: str, call: str = "Module.work(x, y)", scalar: str = "", **more: Any
) -> HostileProgram:
    """x is kept in z behind y; the kernel writes y, and the program's changes z, too; they are added."""
    work = kernel("work", *lines, a="16", b="16")
    main = function(
        f"x: {SIXTEEN}",
        *(f"s = {storage('256')}", f"z = {tensor('s', offset='64')}", "Module.keep(x, z)"),
        *(f"y = {tensor('s')}", call, f"out = {fresh('16')}", "Module.join(y, z, out)", "return out"),
        result=SIXTEEN,
    )
    text = module(_KEEP, _JOIN, work.replace("b_: T.handle", f"b_: T.handle{scalar}"), main)
    found = {"verdict": "always-invalid", "on_line": "Module.work(x, y", **more}
    return hostile(what, "SYM306", text, shows=differs(2 * _X, 2 * _X, _X), **found)


_COPY = (_PASSES, "    b[i] = a[i]")
_NINE = "<<T.if_then_else(i < 16, a[i % 16], T.float32(9))|a[i]>>"


def _layout(what: str, more: str, words: str) -> HostileProgram:
    """A copy of a matrix by a kernel that says more of its operand."""
    copy = kernel("copy", "for i, j in T.grid(4, 4):", "    b[i, j] = a[i, j]", a="4, 4", b="4, 4")
    kind = 'R.Tensor((4, 4), "float32")'
    call = f"y = R.call_tir(Module.copy, (x,), out_ty={kind})"
    return hostile(
        what,
        "SYM308",
        module(
            copy.replace('"float32")', f'"float32"{more})', 1),
            function(f"x: {kind}", call, "return y", result=kind, how=""),
        ),
        verdict="always-invalid",
        on_line="Module.copy",
        shows=refused(words, floats(4, 4), floats(4, 4)),
    )


def _placed(what: str, device: str, scope: str, words: str, **more: Any) -> HostileProgram:
    """A copy on a device and in a scope, in a module that names one device."""
    text = module(
        '\n    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0, "global")]})\n',
        kernel("copy", _PASSES, "    b[i] = a[i]", a="16", b="16"),
        function(
            f"x: {SIXTEEN}",
            f"s = {storage('64')}".replace("value(0)", f"value({device})").replace('"global"', f'"{scope}"'),
            f"y = {tensor('s')}".removesuffix(")") + f", R.prim_value({device}))",
            *("Module.copy(x, y)", "return y"),
            result=SIXTEEN,
        ),
    )
    return hostile(what, "SYM114", text, on_line="alloc_storage", shows=refused(words, _X, _X), **more)


PROGRAMS: tuple[HostileProgram, ...] = (
    _stores(
        "the guard of the last tile lets one element too many through",
        "for block, thread in T.grid(3, 8):",
        "    if block * 8 + thread < <<17|16>>:",
        "        b[block * 8 + thread] = T.if_then_else("
        "block * 8 + thread < 16, a[block * 8 + thread], T.float32(9))",
    ),
    _stores(
        "the last vector of a copy reaches over the end",
        *(*_COPY, "b[T.Ramp(<<12|8>>, 1, 8)] = a[T.Ramp(8, 1, 8)]"),
    ),
    _stores(
        "the passes that are left out with `continue` begin too late",
        *("for i in range(24):", "    if i >= <<20|16>>:", "        continue", f"    b[i] = {_NINE}"),
    ),
    _stores(
        "the loop is left too late",
        *("for i in range(24):", "    if i >= <<17|16>>:", "        break", f"    b[i] = {_NINE}"),
    ),
    _stores(
        "the loop is left at a pass that comes too late",
        *("for i in range(24):", "    if i == <<20|16>>:", "        break", f"    b[i] = {_NINE}"),
    ),
    _stores(
        "of the passes behind the end only some are left out",
        *("for i in range(24):", "    if i >= <<16|8>>:", "        if i >= <<18|16>>:"),
        *("            continue", f"    b[i] = {_NINE}"),
    ),
    _stores(
        "pairs are swapped by the lowest bit, also that behind the end",
        *("for i in range(<<17|16>>):", f"    b[i ^ 1] = {_NINE.replace('|a[i]', '|a[i ^ 1]')}"),
    ),
    _stores(
        "the kernel is right for most scalars, and this call gives another",
        *(*_COPY, "b[at] = a[15]"),
        call="Module.work(x, y, R.prim_value(<<16|15>>))",
        scalar=", at: T.int64",
    ),
    _stores(
        "whether a store is executed depends on data, and where it goes is outside",
        *(*_COPY, "if a[1] > T.float32(0):", "    b[<<16] = T.float32(9)|15] = a[15]>>"),
        severity="warning",
        verdict=None,
    ),
    _layout(
        "the kernel asks for rows of eight elements, and a tensor of Relax has four",
        ", strides=(<<8|4>>, 1)",
        "expected 8",
    ),
    _layout(
        "the kernel asks for a tensor that begins four elements behind its pointer",
        "<<, elem_offset=4|>>",
        "expected 16",
    ),
    _placed("the scope of an accelerator, on a CPU", "0", "global<<.vtcm|>>", "", verdict="always-invalid"),
    _placed(
        "the second device, and the module names one", "<<1|0>>", "global", "device index", severity="warning"
    ),
)
