"""Kernels given tensors at an offset in their storage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

from symalloc.relax.emit.kernel_offsets import accepts_offset, with_offsets

_KERNELS = """
@I.ir_module
class Kernels:
    @T.prim_func
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        source = T.match_buffer(a, (n,), "float32")
        target = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            target[i] = source[i] * T.float32(2)

    @T.prim_func
    def narrow(a: T.Buffer((16,), "float16"), b: T.Buffer((16,), "float16")):
        for i in range(16):
            b[i] = a[i]

    @T.prim_func
    def extern(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.evaluate(T.call_extern("int32", "copy", a.data, b[0]))

    @T.prim_func
    def address(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.evaluate(T.call_extern("int32", "copy", T.address_of(a[0]), b[0]))

    @T.prim_func
    def strided(a: T.handle):
        n = T.int64()
        step = T.int64()
        rows = T.match_buffer(a, (n,), "float32", strides=(step,))
        rows[0] = T.float32(1)

    @T.prim_func
    def shifted(a: T.handle):
        n = T.int64()
        start = T.int64()
        rows = T.match_buffer(a, (n,), "float32", elem_offset=start, offset_factor=8)
        rows[0] = T.float32(1)

    @T.prim_func
    def odd(a: T.handle):
        n = T.int64()
        start = T.int64()
        rows = T.match_buffer(a, (n,), "float32", elem_offset=start, offset_factor=24)
        rows[0] = T.float32(1)
"""
KERNELS = {v.name_hint: f for v, f in tvm.script.from_source(_KERNELS).functions_items()}


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("double", {0, 1}),
        ("narrow", {0, 1}),
        ("extern", {1}),  # the pointer of `a` is handed on
        ("address", {1}),
        ("strided", set()),
        ("shifted", {0}),  # any multiple of 8 elements will do: 64 B are 16
        ("odd", set()),  # 64 B are no multiple of 24 elements
    ],
)
def test_which_parameters_can_be_moved(name: str, positions: set[int]) -> None:
    assert accepts_offset(KERNELS[name]) == positions


def views(storage: Any, dtype: str, *offsets: int) -> list[Any]:
    return [storage._create_view((16,), dtype, relative_byte_offset=o) for o in offsets]


@pytest.mark.parametrize(("name", "dtype"), [("double", "float32"), ("narrow", "float16")])
def test_a_moved_kernel_takes_multiples_of_64_bytes_and_zero(name: str, dtype: str) -> None:
    moved = with_offsets(KERNELS[name], {0, 1})
    built = tvm.compile(tvm.IRModule({name: moved}), target="llvm")
    for first, second in ((0, 64), (64, 0), (128, 192)):
        storage = tvm.runtime.tensor(np.arange(64, dtype="float32"))
        source, target = views(storage, dtype, first, second)
        expected = source.numpy() * (2 if name == "double" else 1)
        built[name](source, target)
        assert target.numpy().tobytes() == expected.tobytes()
