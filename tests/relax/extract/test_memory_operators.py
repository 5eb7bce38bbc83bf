"""R.memory, R.vm and R.builtin.alloc_tensor."""

from __future__ import annotations

from collections.abc import Callable

from symalloc.program import ir as m
from symalloc.program.types import DType, StorageType
from symalloc.size.expr import ZERO, symbol

Read = Callable[[str], m.Program]
N = symbol("m")
FLOAT = DType("float32", 32)


def body(program: m.Program) -> tuple[m.Instruction, ...]:
    return program.functions["main"].body.instructions


def test_memory_storage_counts_bytes_and_vm_storage_elements(program: Read) -> None:
    first, second = body(
        program(
            """
            @R.function(pure=False)
            def main(x: R.Tensor(("m",), "float32")) -> R.Object:
                m = T.int64()
                a = R.memory.alloc_storage(R.shape([m * 8]), 1, R.str("local"), R.dtype("int8"))
                b = R.vm.alloc_storage(R.shape([m * 8]), R.prim_value(0), R.dtype("float32"))
                return b
            """
        )
    )
    assert isinstance(first, m.AllocStorage)
    assert (first.size, first.device, first.scope, first.dialect) == (8 * N, 1, "local", "memory")
    assert isinstance(second, m.AllocStorage)
    assert (second.size, second.device, second.scope, second.dialect) == (32 * N, 0, "global", "vm")
    assert second.dtype == FLOAT
    assert first.var.type == StorageType()


def test_storage_sized_by_a_shape_variable(program: Read) -> None:
    known, unknown = body(
        program(
            """
            @R.function(pure=False)
            def main(s: R.Shape(["m"]), t: R.Shape(ndim=1)) -> R.Object:
                a = R.memory.alloc_storage(s, R.prim_value(0), R.str("global"), R.dtype("uint8"))
                b = R.memory.alloc_storage(t, R.prim_value(0), R.str("global"), R.dtype("uint8"))
                return b
            """
        )
    )
    assert isinstance(known, m.AllocStorage)
    assert known.size == N
    assert isinstance(unknown, m.AllocStorage)
    assert unknown.size is None


def test_tensors_on_a_storage(program: Read) -> None:
    _, first, second, *kills = body(
        program(
            """
            @R.function(pure=False)
            def main(x: R.Tensor(("m",), "float32")) -> R.Tuple:
                m = T.int64()
                s = R.memory.alloc_storage(R.shape([m * 8]), 0, R.str("global"), R.dtype("uint8"))
                a = R.memory.alloc_tensor(s, R.prim_value(m * 4), R.shape([m, 1]), R.dtype("float32"))
                b = R.vm.alloc_tensor(s, R.prim_value(0), R.shape([m]), R.dtype("int8"))
                _ = R.memory.kill_tensor(a)
                _1 = R.memory.kill_storage(s)
                _2 = R.vm.kill_object(b)
                return R.tuple()
            """
        )
    )[:6]
    assert isinstance(first, m.AllocTensor)
    assert isinstance(second, m.AllocTensor)
    assert (first.offset, first.shape, first.dtype) == (4 * N, (N, 1), FLOAT)
    assert first.storage is second.storage
    assert (second.offset, second.shape, second.dtype.name) == (ZERO, (N,), "int8")
    assert [(k.kind, k.target) for k in kills if isinstance(k, m.Kill)] == [
        ("tensor", first.var),
        ("storage", first.storage),
        ("object", second.var),
    ]


def test_fresh_tensor(program: Read) -> None:
    fresh = body(
        program(
            """
            @R.function
            def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m", 2), "int8"):
                m = T.int64()
                a = R.builtin.alloc_tensor(R.shape([m, 2]), R.dtype("int8"), R.prim_value(2), R.str("local"))
                return a
            """
        )
    )[0]
    assert isinstance(fresh, m.AllocFresh)
    assert (fresh.shape, fresh.dtype.name, fresh.device, fresh.scope) == ((N, 2), "int8", 2, "local")


def test_views_keep_what_is_left_out(program: Read) -> None:
    found = [
        i
        for i in body(
            program(
                """
                @R.function
                def main(x: R.Tensor(("m", 4), "float32")) -> R.Tensor(("m",), "int8"):
                    m = T.int64()
                    a = R.memory.view(x)
                    b = R.memory.view(x, R.shape([m]), R.dtype("int8"), m * 4)
                    c = R.memory.ensure_zero_offset(b)
                    return c
                """
            )
        )
        if isinstance(i, m.View)
    ]
    whole, part, start = found
    assert (whole.shape, whole.dtype, whole.offset) == ((N, 4), FLOAT, ZERO)
    assert (part.shape, part.dtype, part.offset) == ((N,), DType("int8", 8), 4 * N)
    assert (start.kind, start.source, start.shape) == ("ensure_zero_offset", part.var, (N,))


def test_dynamic_kernel_call_spreads_its_shape(program: Read) -> None:
    call = body(
        program(
            """
            @T.prim_func
            def fill(a: T.Buffer((16,), "float32"), n: T.int64, k: T.int64):
                for i in range(16):
                    a[i] = T.float32(1)

            @R.function(pure=False)
            def main(x: R.Tensor(("m",), "float32")) -> R.Tuple:
                m = T.int64()
                cls = Module
                _ = R.vm.call_tir_dyn(cls.fill, (x, R.shape([m, 3])))
                return R.tuple()
            """
        )
    )[0]
    assert isinstance(call, m.CallKernel)
    assert call.kernel == "fill"
    assert call.arguments[1:] == (m.Scalar(N), m.Scalar(3 + ZERO))


def test_what_has_no_exact_form_is_said(program: Read) -> None:
    found = body(
        program(
            """
            @R.function(pure=False)
            def main(x: R.Tensor(("m",), "float32"), s: R.Object) -> R.Object:
                m = T.int64()
                a = R.memory.alloc_tensor(s, R.prim_value(m ^ m), R.shape([m]), R.dtype("float32"))
                return a
            """
        )
    )[0]
    assert isinstance(found, m.NotUnderstood)
    assert "a bitwise operation" in found.what
    assert "relax.memory.alloc_tensor" in found.what
    assert any(isinstance(r, m.Var) and r.name == "s" for r in found.reads)


def test_reshape_is_a_view_only_once_operators_are_lowered(program: Read) -> None:
    operator = """
        @R.function
        def main(x: R.Tensor(("m", 4), "float32")) -> R.Tensor(("m * 4",), "float32"):
            m = T.int64()
            a = R.reshape(x, R.shape([m * 4]))
            b = R.add(a, a)
            return b
        """
    lowered = """
        @R.function(pure=False)
        def main(x: R.Tensor(("m", 4), "float32")) -> R.Tensor(("m * 4",), "float32"):
            m = T.int64()
            a = R.reshape(x, R.shape([m * 4]))
            b = R.builtin.alloc_tensor(R.shape([m]), R.dtype("int8"), R.prim_value(0))
            return a
        """
    assert isinstance(body(program(operator))[0], m.CallOperator)
    view = body(program(lowered))[0]
    assert isinstance(view, m.View)
    assert (view.kind, view.shape, view.offset) == ("reshape", (4 * N,), ZERO)
