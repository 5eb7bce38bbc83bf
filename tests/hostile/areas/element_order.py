"""Kernels in which it matters when an element is written, in how many bytes, what narrow integers hold."""

from __future__ import annotations

import re
from textwrap import indent

from tests.hostile.machine import Array, Machine, depends_on_storages, floats
from tests.hostile.program import HostileProgram

__all__ = ["PROGRAMS", "kernel_program"]

_MODULE = """@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def work(first: T.handle, out: T.handle):
        n = T.int64()
        a = T.match_buffer(first, ({n},), "float32")
        b = T.match_buffer(out, ({n},), "float32")
{body}

    @R.function
    def main(x: R.Tensor(({named},), "float32")) -> R.Tensor(({named},), "float32"):
        n = T.int64()
        y = R.call_tir(Module.work, (x,), out_ty=R.Tensor(({n},), "float32"))
        return y
"""


def kernel_program(
    what: str, bad: str, twin: str | None = None, *, size: int = 0, **more: object
) -> HostileProgram:
    """A kernel on 16 elements, or on n of them, where `size` is one at which it goes wrong.

    Without a twin `bad` is both: lines that begin with `-` are the program's alone, with `+` the twin's.
    """

    def side(mark: str) -> str:
        return "\n".join(line[2:] for line in bad.split("\n") if line[:1] in ("", " ", mark))

    def module(body: str) -> str:
        n, named = ("n", '"n"') if size else ("16", "16")
        return _MODULE.format(n=n, named=named, body=indent(body.strip(), " " * 8))

    data: Array = floats(size or 16)

    def old_bytes(one: Machine, other: Machine) -> bool:
        return depends_on_storages(one, data) and not depends_on_storages(other, data)

    own = re.search("alloc_buffer.*float", bad)  # a buffer of the kernel is no storage
    shows = None if own or "rule" in more else old_bytes
    verdict = "runtime-check" if size else "always-invalid"
    found = {"rule": "SYM208", "verdict": verdict, "counterexample": {"n": size} if size else None}
    given: dict[str, object] = {**found, "shows": shows, **more}
    return HostileProgram(
        what=what,
        module=module(bad if twin is not None else side("-")),
        twin=module(twin if twin is not None else side("+")),
        **given,  # type: ignore[arg-type]
    )


_SUM = """
for i, k in T.grid(16, 16):
    with T.sblock("sum"):
        vi = T.axis.spatial(16, i)
        vk = T.axis.reduce(16, {})
        T.where({})
        with T.init():
            b[vi] = T.float32(0)
        b[vi] = b[vi] + a[vk]
"""
_WHILE = """
count = T.alloc_buffer((1,), "int32")
count[0] = 0
while count[0] < {}:
    b[count[0]] = a[count[0]]
    count[0] = count[0] + 1
"""
_BYTES = 'c = T.decl_buffer((64,), "uint8", data=b.data)\nfor i in range({}):\n    c[i] = T.uint8(1)'
_SCRATCH = """
c = T.alloc_buffer((16,), "float32")
d = T.decl_buffer(({},), "float16", data=c.data)
for i in range({}):
    d[i] = T.float16(1)
for i in range(16):
    b[i] = c[i]
"""
_COPY = "for i in range(n):\n    b[i] = a[i]\n"

PROGRAMS: tuple[HostileProgram, ...] = (
    kernel_program(
        "the second element of a scan over every other one is never set",
        "b[0] = a[0]\nfor i in range(n - 2):\n    b[i + 2] = b[i] + a[i]\nif n > 1:\n    b[1] = a[0]",
        "b[0] = a[0]\nif n > 1:\n    b[1] = a[0]\nfor i in range(n - 2):\n    b[i + 2] = b[i] + a[i]",
        size=4,
    ),
    kernel_program(
        "the pass that sets a sum to zero is left out by the predicate of the block",
        _SUM.format("k", "k >= i"),
        _SUM.format("k", "k <= i"),
    ),
    kernel_program(
        "the axis of a sum goes down, so that its start comes last",
        _SUM.format("15 - k", "k >= 0"),
        _SUM.format("k", "k >= 0"),
        shows=None,  # the start overwrites what was made of old bytes
    ),
    kernel_program(
        "a vector is loaded of which only the first half was stored",
        "b[T.Ramp(0, 1, 4)] = a[T.Ramp(0, 1, 4)]\nb[T.Ramp(8, 1, 8)] = b[T.Ramp(0, 1, 8)]\n"
        "b[T.Ramp(4, 1, 4)] = a[T.Ramp(4, 1, 4)]",
        "b[T.Ramp(0, 1, 8)] = a[T.Ramp(0, 1, 8)]\nb[T.Ramp(8, 1, 8)] = b[T.Ramp(0, 1, 8)]",
    ),
    kernel_program("the last byte of a tensor is not written", _BYTES.format(63), _BYTES.format(64)),
    kernel_program(
        "a buffer of the kernel's own is filled in elements of half the size",
        _SCRATCH.format(16, 16),
        _SCRATCH.format(32, 32),
        shows=None,  # it is no storage
    ),
    kernel_program(
        "the number of passes wraps",
        'for i in range(T.Cast("int64", T.Cast("int8", n))):\n    b[i] = a[i]',
        _COPY,
        size=128,
    ),
    kernel_program(
        "elements from 256 on are stored over the first ones",
        'for i in range(n):\n    b[T.Cast("int64", T.Cast("uint8", i))] = a[i]',
        'for i in range(n):\n    b[T.Cast("int64", T.Cast("int32", i))] = a[i]',
        size=300,
        counterexample={"n": 257},
    ),
    kernel_program(
        "a power of two is an index",
        "for i in range(16):\n    b[i] = T.float32(0)\nfor i in range(6):\n    b[T.shift_left(1, i)] = a[i]",
        "for i in range(16):\n    b[i] = T.float32(0)\nfor i in range(4):\n    b[T.shift_left(1, i)] = a[i]",
        rule="SYM306",
    ),
    kernel_program("a loop that counts in a buffer ends early", _WHILE.format(15), _WHILE.format(16)),
)
