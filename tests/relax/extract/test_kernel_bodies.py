"""Bodies of PrimFuncs: what is read of each stands in golden/kernels.txt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
BODIES = """
# loads, stores and their guards
for i in range(n):
    b[i] = a[i, 3]
--
for i in T.serial(2, 10, step=3):
    b[i] = a[i, 0]
--
for i in range(n):
    if i < 4 and s > 2:
        b[i] = a[0, 0]
    else:
        b[9] = a[1, 1]
--
for i in range(n):
    if c[i] < 4 and i > 0:
        b[i] = 0.0
--
for i in range(n):
    b[i] = T.if_then_else(i >= 1, a[i - 1, 0], b[5])
--
for i in range(n):
    b[i] = T.Select(i >= 1, a[i - 1, 0], T.float32(0))
--
for i in range(n):
    b[c[i]] = a[T.min(T.max(c[i], 0), n - 1), 7]
--
for i in range(c[0]):
    b[i] = 0.0
--
b[T.Ramp(0, 2, 4)] = a[2, T.Ramp(0, 1, 4)]
--
f = T.alloc_buffer((1,), "int64")
f[0] = T.int64(0)
while f[0] < n:
    b[f[0]] = a[f[0], 1]
# loops and kernels that are left early
for i in range(n):
    if i >= 64:
        T.evaluate(T.break_loop())
    b[i] = 0.0
--
b[0] = 1.0
if s > 0:
    return 0
b[1] = 1.0
--
for i in range(n):
    b[i] = 1.0
    if i >= 64:
        continue
    b[i] = 0.0
--
for i in range(n):
    b[i] = 1.0
    if i >= 64:
        break
    b[i] = 0.0
b[5] = 2.0
--
for i in range(n):
    if i < 8:
        break
    b[i] = 0.0
--
for i in range(n):
    if i >= 8:
        if i >= 64:
            continue
    b[i] = 0.0
--
for i in range(n):
    if c[i] > 0:
        continue
    b[i] = 0.0
--
for i in range(n):
    for j in range(8):
        if j > i:
            break
        b[j] = a[i, j]
    c[i] = T.int64(0)
# assertions at the top hold behind a call
assert n <= 64, "small"
if n > 3:
    assert n <= 5, "not always reached"
for i in range(n):
    b[i] = 0.0
# other names of buffers, what is handed to others, and buffers of the kernel's own
f = T.decl_buffer((8, 8), "float32", data=b.data)
for i, j in T.grid(8, 8):
    f[i, j] = 0.0
--
f = T.decl_buffer((n * 8,), "float32", data=a.data)
for i in range(n * 8):
    f[i] = 0.0
--
f = T.decl_buffer((64,), "float32", data=p)
f[5] = b[0]
--
T.evaluate(T.call_extern("int32", "f", T.address_of(b[3])))
--
T.evaluate(T.call_packed("f", T.address_of(a[0, 0]), b[0]))
--
T.evaluate(T.call_extern("int32", "f", a.access_ptr("r")))
--
T.evaluate(b[0])
--
f = T.alloc_buffer((64,), "float32")
f[70] = b[1]
b[2] = f[80]
# buffers that are written in full
for i in range(m):
    for j in range(n * 2):
        d[i, j] = T.float32(0)
--
for j in T.parallel(n * 2):
    for i in T.unroll(m):
        d[i, j] = T.float32(0)
--
for i in range(m):
    e[i, 0] = T.float32(0)
--
for i, r in T.grid(64, 4):
    b[i] = T.float32(0)
    b[i] = T.float32(1)
# and that are not: not all of it, not always, or read as well
b[0] = T.float32(0)
--
for i in range(63):
    b[i + 1] = T.float32(0)
--
for i in range(64):
    b[i // 2] = T.float32(0)
--
for i in range(m):
    d[i, i] = T.float32(0)
--
for i in range(64):
    if i < s:
        b[i] = T.float32(0)
--
for i, r in T.grid(64, m):
    b[i] = T.float32(0)
--
for i in range(64):
    while s > 0:
        b[i] = T.float32(0)
--
for i in range(64):
    b[i] = T.float32(0)
    if s > 0:
        T.evaluate(T.break_loop())
--
for i in range(64):
    b[i] = b[i] + T.float32(1)
--
for i in range(64):
    b[i] = T.float32(0)
T.evaluate(T.address_of(b[0]))
"""
BLOCKS = """
# a sum is initialised at its first step, and leaves empty rows as they were
for i, j in T.grid(T.int64(64), n):
    with T.sblock("sum"):
        vi, vj = T.axis.remap("SR", [i, j])
        with T.init():
            b[vi] = T.float32(0)
        b[vi] = b[vi] + a[vj, 0]
# blocks with a predicate, and regions of buffers
for block in T.thread_binding(2, thread="blockIdx.x"):
    for thread in T.thread_binding(32, thread="threadIdx.x"):
        with T.sblock("x"):
            v = T.axis.spatial(n, T.Cast("int64", block * 32 + thread))
            T.where(T.Cast("int64", block * 32 + thread) < n)
            T.reads(a[v, 0:8], e[0, 0])
            T.writes(b[v])
            row = T.match_buffer(a[v, 2:8], (6,), "float32", offset_factor=1)
            b[v] = row[3]
# blocks that write in full, and do not
for i, j in T.grid(m, n * 2):
    with T.sblock("x"):
        w, v = T.axis.remap("SS", [j, i])
        d[v, w] = T.float32(0)
--
for i, j in T.grid(m, n * 2):
    with T.sblock("x"):
        v, w = T.axis.remap("SS", [i, j])
        T.where(i < 3)
        d[v, w] = T.float32(0)
--
for i, j in T.grid(m, n * 2):
    with T.sblock("x"):
        v = T.axis.spatial(m, i)
        w = T.axis.spatial(n * 2, j // 2)
        d[v, w] = T.float32(0)
# the axes of a block are put where they are used
k = T.sblock_alloc_buffer((1,), "int64", scope="local")
k[0] = 1
with T.sblock("x"):
    v = T.axis.spatial(64, k[0])
    k[0] = 2
    b[v] = 0.0
--
k = T.sblock_alloc_buffer((1,), "int64", scope="local")
k[0] = 1
with T.sblock("x"):
    v = T.axis.reduce(64, k[0])
    with T.init():
        k[0] = 2
    b[v] = 0.0
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


def told(program: Read, bodies: str, s_tir: bool) -> Iterator[str]:
    for part in bodies.strip().removeprefix("# ").split("\n# "):
        title, _, rest = part.partition("\n")
        yield f"# {title}"
        for body in rest.split("\n--\n"):
            found = kernel(program, body, s_tir=s_tir)
            yield body.strip("\n")
            yield " ".join(["  =>", *filter(None, map(effects, found.parameters)), *map(str, found.asserts)])
            yield from (f"     {shown(access)}" for access in found.accesses)


@pytest.mark.parametrize(("name", "bodies"), [("kernels.txt", BODIES), ("blocks.txt", BLOCKS)])
def test_what_bodies_do(name: str, bodies: str, program: Read, golden: Callable[[str, str], None]) -> None:
    golden(name, "\n".join(told(program, bodies, bodies is BLOCKS)) + "\n")


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
