"""Bodies of PrimFuncs: they stand in golden/kernels.txt and blocks.txt, each with what is read of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent

import pytest

from symalloc.program.ir import Kernel, KernelAccess, KernelBuffer, KernelScalar, Program
from tests.relax.extract.shown import text

Read = Callable[[str], Program]
PARAMETERS = """
@T.prim_func(s_tir={})
def k(x: T.handle, b: T.Buffer((64,), "float32"), y: T.handle, p: T.handle("float32"), D: T.handle,
      E: T.handle, s: T.int64):
    n = T.int64()
    m = T.int64()
    a = T.match_buffer(x, (n, 8), "float32")
    c = T.match_buffer(y, (n,), "int64")
    d = T.match_buffer(D, (m, n * 2), "float32")
    e = T.match_buffer(E, (m, 1), "float32")
"""


def kernel(program: Read, body: str, *, s_tir: bool = False) -> Kernel:
    return program(PARAMETERS.format(s_tir) + indent(body.strip("\n"), "    ")).kernels["k"]


def shown(access: KernelAccess) -> str:
    """An access on one line: `load 0[i, 3] where i < n`; a `?` behind it where it is not exact."""
    indices = ", ".join("?" if index is None else str(index) for index in access.indices)
    ranges = {f"{loop.symbol} >= 0" for loop in access.loops}
    held = [str(condition) for condition in access.domain if str(condition) not in ranges]
    loops = " ".join(f"{loop.symbol}{'|' if loop.parallel else ''}" for loop in access.loops)
    where = f" where {', '.join(held)}" if held else ""
    doubt = "" if access.exact else " ?"
    return f"{access.kind} {access.parameter}[{indices}]{where}{doubt}{f'  ({loops})' if loops else ''}"


def effects(parameter: KernelBuffer | KernelScalar) -> str:
    if isinstance(parameter, KernelScalar) or not (parameter.reads or parameter.writes):
        return ""
    full = "!" if parameter.must_def else ""
    return f"{parameter.name}:{'r' * parameter.reads}{'w' * parameter.writes}{full}"


def retold(program: Read, known: str, s_tir: bool) -> Iterator[str]:
    """What a golden file says of the bodies in it, told anew: behind a body stands what is read of it."""
    body: list[str] = []
    for line in known.splitlines():
        if line.startswith("# "):
            yield line
        elif line.startswith("  =>"):
            found = kernel(program, "\n".join(body), s_tir=s_tir)
            yield from body
            yield " ".join(["  =>", *filter(None, map(effects, found.parameters)), *map(str, found.asserts)])
            yield from (f"     {shown(access)}" for access in found.accesses)
            body = []
        elif not line.startswith(("     load ", "     store ")):
            body.append(line)


@pytest.mark.parametrize(("name", "s_tir"), [("kernels.txt", False), ("blocks.txt", True)])
def test_what_bodies_do(name: str, s_tir: bool, program: Read, golden: Callable[[str, str], None]) -> None:
    known = (Path(__file__).parent / "golden" / name).read_text()
    golden(name, "\n".join(retold(program, known, s_tir)) + "\n")


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ("k: T.int64 = n * 2\nb[k + 1] = 0.0", "2*n + 1"),
        ("k: T.int64 = n\nk = k + 1\nb[k] = 0.0", "n + 1"),
        ("for i in range(n):\n    k: T.int64 = i*8\n    for j in range(8):\n        b[k+j] = 0.0", "8*i + j"),
        ("k = T.alloc_buffer((), 'int64')\nk[()] = n\nb[k[()]] = 0.0", "n"),
        ("k: T.int64 = n\nu: T.let = k + 1\nk = 3\nb[u] = 0.0", "n + 1"),
        ("k: T.int64 = 0\nif c[0] > 0:\n    k = 1\n    b[k] = 0.0", "1"),
        ("k: T.int64 = 0\nif c[0] > 0:\n    k = 1\nelse:\n    b[k] = 0.0", "0"),
        # what another pass has stored, or none
        ("k: T.int64 = 0\nfor i in range(n):\n    b[k] = 0.0\n    k = k + 1", "i"),
        ("k: T.int64 = 0\nfor i in range(n):\n    b[k] = 0.0\n    k = k * 2", "?"),
        ("k: T.int64 = 0\nfor i in range(n):\n    k = i\nb[k] = 0.0", "?"),
        ("k: T.int64 = 0\nwhile k < n:\n    b[k] = 0.0\n    k = k + 1", "while_"),
        ("k: T.int64 = 0\nwhile k < n:\n    b[k] = 0.0\n    k = k + 1\n    k = k + 1", "?"),
        ("k: T.int64 = 0\nfor i in range(n):\n    k = k + 2\nb[k] = 0.0", "2*n"),
        ("k: T.int64 = 0\nfor i in T.parallel(n):\n    k = i\n    b[k] = 0.0", "?"),
        ("k: T.int64 = 0\nif c[0] > 0:\n    k = 1\nb[k] = 0.0", "?"),
        ("k: T.int64 = 0\nif c[0] > 0:\n    T.evaluate(0)\nelse:\n    k = 1\nb[k] = 0.0", "?"),
        # what somebody else may store
        ("k: T.int64 = 0\nT.evaluate(T.call_extern('int32', 'f', T.address_of(k)))\nb[k] = 0.0", "?"),
        ("k: T.int64 = 0\nT.evaluate(T.call_extern('int32', 'f', k))\nb[k] = 0.0", "?"),
        ("k = T.alloc_buffer((1,), 'int64')\nl = T.decl_buffer((1,), 'int64', data=k.data)\n"
         "k[0] = 1\nl[0] = 2\nb[k[0]] = 0.0", "?"),
        # what is evaluated only where it is used
        ("k: T.int64 = 4\nf = T.decl_buffer((8, k), 'float32', data=b.data)\nk = 2\nf[1, 0] = 0.0", "?"),
        # what is no number of its own, and what grows with each store
        ("k = T.alloc_buffer((2,), 'int64')\nk[0] = 1\nb[k[0]] = 0.0", "?"),
        ("k: T.int8 = T.int8(127)\nk = k + T.int8(1)\nb[T.cast(k, 'int64')] = 0.0", "?"),
        ("k: T.int64 = c[0]\nb[k] = 0.0", "?"),
        ("k: T.int64 = n\n" + "k = k * k + s\n" * 40 + "b[k] = 0.0", "?"),
    ],
)  # fmt: skip
def test_numbers_in_buffers_of_one_element(program: Read, body: str, stored: str) -> None:
    (store,) = (a for a in kernel(program, body).accesses if a.kind == "store" and a.parameter == 1)
    assert ["?" if index is None else str(index) for index in store.indices] == [stored]


def test_parameters(program: Read) -> None:
    found = program(
        """
        @T.prim_func
        def k(A: T.handle, raw: T.handle, B: T.handle, C: T.handle, k: T.int64):
            m = T.int64()
            n = T.int64()
            offset = T.int64()
            a = T.match_buffer(A, (m, m * 2), "float16", elem_offset=offset, offset_factor=32)
            b = T.match_buffer(B, (n * 2,), "int8")
            c = T.match_buffer(C, (16,), "float32", strides=(2,))
            for i in range(16):
                c[i] = T.float32(0)
            T.evaluate(T.call_extern("int32", "f", raw))
        """
    ).kernels["k"]
    assert found.parameters[-1] == KernelScalar(name="k")
    assert [
        f"{effects(p)} {text(p.dtype)}{text(p.shape)} {p.offset_factor}"
        for p in found.parameters
        if isinstance(p, KernelBuffer)
    ] == [" float16(m, 2*m) 32", "raw:rw ?? None", " int8(2*n) None", "c:w float32(16) None"]
