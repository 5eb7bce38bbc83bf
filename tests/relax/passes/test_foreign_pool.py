"""Memory that a packed function gives stays where that puts it."""

# ruff: noqa: N803, N805
from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

import symalloc
from symalloc.program import ir
from symalloc.relax.extract import calls


@I.ir_module
class Module:
    @T.prim_func
    def twice(A: T.handle, B: T.handle):
        n = T.int64()
        a = T.match_buffer(A, (n,), "float32")
        b = T.match_buffer(B, (n,), "float32")
        for i in range(n):
            b[i] = a[i] + a[i]

    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        m = T.int64()
        cls = Module
        a = R.call_packed(
            "mylib.alloc_pinned", R.shape([m]), R.dtype("float32"), ty_args=R.Tensor((m,), "float32")
        )
        cls.twice(x, a)
        b = R.builtin.alloc_tensor(R.shape([m]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        cls.twice(a, b)
        c = R.builtin.alloc_tensor(R.shape([m]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        cls.twice(b, c)
        return c


def _pinned_tensor(site: calls.CallSite) -> ir.Instruction:
    """As CONTRIBUTING has it."""
    return ir.AllocFresh(
        **site.head,
        shape=site.context.types.shape_or_none(site.arguments[0]),
        dtype=calls._known_dtype(site, 1),
        device=0,
        giver="mylib.alloc_pinned",
    )


def test_a_tensor_of_another_pool_is_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setitem(calls._PACKED, "mylib.alloc_pinned", (2, _pinned_tensor))  # type: ignore[arg-type]

    def alloc(shape: tvm.runtime.ShapeTuple, dtype: object) -> tvm.runtime.Tensor:
        given.append(tvm.runtime.empty(tuple(shape), str(dtype)))
        return given[-1]

    tvm.register_global_func("mylib.alloc_pinned", alloc, override=True)
    try:
        planned = symalloc.plan(Module)
        assert ("a", "`mylib.alloc_pinned` gives its memory") in [
            (left.name, left.reason) for left in planned.plans["main"].unplanned
        ]
        built = relax.build(planned.module, "llvm", relax_pipeline=symalloc.pipeline("llvm"))
        x = np.arange(5, dtype="float32")
        found = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x))
        np.testing.assert_array_equal(found.numpy(), 8 * x)
        np.testing.assert_array_equal(given[0].numpy(), 2 * x)
    finally:
        tvm_ffi.registry.remove_global_func("mylib.alloc_pinned")
