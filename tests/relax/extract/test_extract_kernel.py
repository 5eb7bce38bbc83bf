"""What a PrimFunc reads and writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from symalloc.program.ir import KernelBuffer, KernelScalar, Program
from symalloc.size.condition import le
from symalloc.size.expr import symbol

Read = Callable[[str], Program]


def effects(program: Read, body: str) -> dict[str, str]:
    """For each buffer of a kernel with buffers a, b, c: `r`, `w`, `rw` or nothing."""
    kernel = program(
        f"""
        @T.prim_func
        def k(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32"), c: T.Buffer((16,), "float32")):
            {body}
        """
    ).kernels["k"]
    found = {}
    for parameter in kernel.parameters:
        assert isinstance(parameter, KernelBuffer)
        found[parameter.name] = "r" * parameter.reads + "w" * parameter.writes
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a[0] = b[0]", {"a": "w", "b": "r", "c": ""}),
        ("a[0] = a[0] + b[0]", {"a": "rw", "b": "r", "c": ""}),
        ("a[0] = T.Select(b[0] > T.float32(0), c[1], T.float32(0))", {"a": "w", "b": "r", "c": "r"}),
        ('T.evaluate(T.call_packed("f", T.address_of(a[0]), b[0]))', {"a": "rw", "b": "r", "c": ""}),
        ('T.evaluate(T.call_extern("int32", "f", a.access_ptr("r")))', {"a": "rw", "b": "", "c": ""}),
        ('T.evaluate(T.call_packed("f", a.data))', {"a": "rw", "b": "", "c": ""}),
        ("T.evaluate(b[0])", {"a": "", "b": "r", "c": ""}),
    ],
)
def test_effects(program: Read, body: str, expected: dict[str, str]) -> None:
    assert effects(program, body) == expected


def test_another_name_for_a_buffer_may_do_anything(program: Read) -> None:
    body = 'D = T.decl_buffer((16,), "float32", data=c.data)\n            D[0] = a[0]'
    assert effects(program, body) == {"a": "r", "b": "", "c": "rw"}


def test_blocks_declare_and_bodies_act(program: Read) -> None:
    kernel = program(
        """
        @T.prim_func(s_tir=True)
        def k(a: T.Buffer((16, 16), "int8"), b: T.Buffer((16, 16), "int8"), c: T.Buffer((16,), "int8")):
            for i in range(16):
                with T.sblock("x"):
                    vi = T.axis.spatial(16, i)
                    T.reads(a[vi, 0:16], c[0])
                    T.writes(b[vi, 0:16])
                    part = T.match_buffer(a[vi, 0:16], (1, 16), "int8", offset_factor=1)
                    b[vi, 0] = part[0, 0]
        """
    ).kernels["k"]
    assert [(p.reads, p.writes) for p in kernel.parameters if isinstance(p, KernelBuffer)] == [
        (True, True),  # seen through another name
        (False, True),
        (False, False),  # declared to be read, and is not
    ]


def test_parameters(program: Read) -> None:
    kernel = program(
        """
        @T.prim_func
        def k(A: T.handle, raw: T.handle, B: T.handle, k: T.int64):
            m = T.int64()
            n = T.int64()
            offset = T.int64()
            a = T.match_buffer(A, (m, m * 2), "float16", elem_offset=offset, offset_factor=32)
            b = T.match_buffer(B, (n * 2,), "int8")
            T.evaluate(T.call_extern("int32", "f", raw))
        """
    ).kernels["k"]
    a, raw, b, k = kernel.parameters
    m = symbol("m")
    assert isinstance(a, KernelBuffer)
    assert (a.shape, a.offset_factor) == ((m, 2 * m), 32)
    assert a.dtype is not None
    assert a.dtype.itemsize == 2
    assert isinstance(raw, KernelBuffer)
    assert (raw.shape, raw.dtype, raw.reads, raw.writes) == (None, None, True, True)
    assert isinstance(b, KernelBuffer)
    assert (b.shape, b.offset_factor, b.reads, b.writes) == ((2 * symbol("n"),), None, False, False)
    assert k == KernelScalar(name="k")
    assert kernel.undefined == {"n"}


def test_assertions_at_the_top_hold_behind_a_call(program: Read) -> None:
    kernel = program(
        """
        @T.prim_func(s_tir=True)
        def k(n: T.int64, a: T.Buffer((16,), "int8")):
            assert n <= 7, "too large"
            if n > 3:
                assert n <= 5, "not always reached"
            a[0] = T.int8(1)
        """
    ).kernels["k"]
    assert kernel.asserts == (le(symbol("n"), 7),)
