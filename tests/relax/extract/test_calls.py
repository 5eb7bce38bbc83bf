"""Calls of kernels, packed functions and operators."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from symalloc.program import ir as m
from symalloc.program.types import ScalarType
from symalloc.size.condition import le
from symalloc.size.expr import symbol

Read = Callable[[str], m.Program]
N = symbol("m")


def first(program: Read, statement: str, kernel: str = "") -> m.Instruction:
    """The first instruction of a function that holds one statement for `y`."""
    text = f"""{kernel}
        @R.function(pure=False)
        def main(x: R.Tensor(("m",), "float32"), o: R.Object, s: R.Shape(["k"])) -> R.Object:
            m = T.int64()
            cls = Module
            y = {statement}
            return y
    """
    return program(text).functions["main"].body.instructions[0]


KERNEL_WITH_SYMBOL = """
        @T.prim_func
        def twice(A: T.handle, k: T.int64, B: T.handle):
            n = T.int64()
            a = T.match_buffer(A, (n,), "float32")
            b = T.match_buffer(B, (n,), "float32")
            for i in range(n):
                b[i] = a[i] + a[i]
"""


def test_kernel_called_with_its_output(program: Read) -> None:
    call = first(program, "cls.twice(x, m * 2, x)", KERNEL_WITH_SYMBOL)
    assert isinstance(call, m.CallKernel)
    x = call.arguments[0]
    assert call.arguments == (x, m.Scalar(2 * N), x)


def test_call_tir(program: Read) -> None:
    call = first(
        program, 'R.call_tir(cls.twice, (x, m), out_ty=R.Tensor((m,), "float32"))', KERNEL_WITH_SYMBOL
    )
    assert isinstance(call, m.CallTIR)
    assert call.kernel == "twice"
    assert call.inputs[1] == m.Scalar(N)
    assert [output.shape for output in call.outputs] == [(N,)]
    assert call.inplace == ()


def test_call_tir_in_place(program: Read) -> None:
    call = first(
        program,
        "R.call_tir_inplace(cls.twice, (x, m), inplace_indices=[-1, 0], "
        'out_ty=[R.Tensor((m,), "float32"), R.Tensor((m,), "float32")])',
        KERNEL_WITH_SYMBOL,
    )
    assert isinstance(call, m.CallTIR)
    assert call.inplace == (None, 0)
    assert len(call.outputs) == 2


@pytest.mark.parametrize(
    ("statement", "ownership", "pure"),
    [
        ('R.call_packed("f", x, ty_args=R.Tensor((m,), "float32"))', m.Ownership.UNKNOWN, False),
        ('R.call_pure_packed("f", x, ty_args=R.Tensor((m,), "float32"))', m.Ownership.UNKNOWN, True),
        ('R.call_packed("f", x, ty_args=R.Object)', m.Ownership.UNKNOWN, False),
        ('R.call_packed("f", x, ty_args=R.Tuple(R.Shape(ndim=1), R.Object))', m.Ownership.UNKNOWN, False),
        ('R.call_packed("f", x, ty_args=R.Shape(ndim=1))', m.Ownership.FRESH, False),
        ('R.call_packed("f", x, ty_args=R.Tuple)', m.Ownership.FRESH, False),
        ('R.call_dps_packed("f", (x, 1), out_ty=R.Tensor((m,), "float32"))', m.Ownership.FRESH, True),
        ('R.call_packed("relax.run.unique", x, ty_args=R.Tensor(ndim=1))', m.Ownership.FRESH, True),
        ('R.call_packed("vm.builtin.rnn_state_set", o, x, ty_args=R.Object)', m.Ownership.ARGUMENT, False),
        (
            'R.call_inplace_packed("f", x, inplace_indices=[0], ty_args=R.Tensor((m,), "float32"))',
            m.Ownership.ARGUMENT,
            False,
        ),
    ],
)
def test_who_owns_what_a_packed_function_returns(
    program: Read, statement: str, ownership: m.Ownership, pure: bool
) -> None:
    call = first(program, statement)
    assert isinstance(call, m.CallPacked)
    assert call.ownership is ownership
    assert call.pure is pure
    assert any(isinstance(a, m.Var) and a.name == "x" for a in call.arguments)


def test_what_a_packed_function_writes(program: Read) -> None:
    given = first(
        program, 'R.call_inplace_packed("f", o, x, inplace_indices=[1], ty_args=R.Tensor((m,), "float32"))'
    )
    assert isinstance(given, m.CallPacked)
    assert given.writes == {1}
    known = first(
        program, 'R.call_packed("vm.builtin.apply_softmax_with_temperature", x, 1.0, ty_args=R.Object)'
    )
    assert isinstance(known, m.CallPacked)
    assert known.writes == {0}


def test_builtin_reshape_and_copy_share_memory(program: Read) -> None:
    view = first(
        program,
        'R.call_packed("vm.builtin.reshape", x, R.shape([m, 1]), ty_args=R.Tensor((m, 1), "float32"))',
    )
    assert isinstance(view, m.View)
    assert (view.kind, view.shape) == ("reshape", (N, 1))
    copy = first(program, 'R.call_packed("vm.builtin.copy", x, ty_args=R.Tensor((m,), "float32"))')
    assert isinstance(copy, m.Alias)


def test_builtin_storage_and_tensor(program: Read) -> None:
    storage = first(
        program,
        'R.call_builtin_with_ctx("vm.builtin.alloc_storage", '
        '(R.shape([m]), R.prim_value(0), R.dtype("float32"), R.str("global")), ty_args=R.Object)',
    )
    assert isinstance(storage, m.AllocStorage)
    assert storage.size == 4 * N
    tensor = first(
        program,
        'R.call_packed("vm.builtin.alloc_tensor", o, R.prim_value(64), R.shape([m]), R.dtype("int8"), '
        'ty_args=R.Tensor((m,), "int8"))',
    )
    assert isinstance(tensor, m.AllocTensor)
    assert tensor.offset == 64


def test_too_few_arguments_are_not_understood(program: Read) -> None:
    call = first(program, 'R.call_packed("vm.builtin.reshape", x, ty_args=R.Object)')
    assert isinstance(call, m.NotUnderstood)
    assert "vm.builtin.reshape" in call.what


def test_asserts_before_and_after_lowering(program: Read) -> None:
    before = first(program, 'R.assert_op(m <= 4, [m], format="m is {}")')
    after = first(program, 'R.call_packed("relax.run.assert_op", m <= 4, "m is {}", m, ty_args=R.Tuple)')
    data = first(program, 'R.assert_op(R.call_packed("f", x, ty_args=R.Tensor((), "bool")), [m], format="")')
    assert isinstance(before, m.Assert)
    assert before.condition == le(N, 4)
    assert isinstance(after, m.Assert)
    assert after.condition == le(N, 4)
    assert isinstance(data, m.CallPacked)


def test_take_says_how_it_indexes(program: Read) -> None:
    constant = first(program, 'R.take(x, R.const([-1, 2], "int64"), axis=0, mode="fast")')
    assert isinstance(constant, m.CallOperator)
    assert constant.attributes == {"axis": "0", "mode": "fast"}
    index = constant.arguments[1]
    assert isinstance(index, m.ConstantTensor)
    assert index.values == (-1, 2)
    scalar = first(program, 'R.take(x, R.prim_value(3), axis=0, mode="clip")')
    assert isinstance(scalar, m.CallOperator)
    assert scalar.arguments[1] == m.Scalar(symbol("m") * 0 + 3)


def test_floating_constants_carry_no_values(program: Read) -> None:
    call = first(program, 'R.add(x, R.const(1.5, "float32"))')
    assert isinstance(call, m.CallOperator)
    constant = call.arguments[1]
    assert isinstance(constant, m.ConstantTensor)
    assert constant.values is None


def test_python_functions_may_return_their_argument(program: Read) -> None:
    call = first(program, 'R.call_py_func("g", (x,), out_ty=R.Tensor((m,), "float32"))')
    assert isinstance(call, m.CallPacked)
    assert (call.name, call.ownership) == ("g", m.Ownership.UNKNOWN)


def test_hints_hand_on_their_argument(program: Read) -> None:
    assert isinstance(first(program, "R.builtin.stop_lift_params(x)"), m.Alias)


def test_closures(program: Read) -> None:
    call = first(program, 'R.invoke_closure(o, (x,), ty_args=R.Tensor((m,), "float32"))')
    assert isinstance(call, m.NotUnderstood)
    assert any(isinstance(r, m.Var) and r.name == "x" for r in call.reads)


def test_shapes_are_read_as_values(program: Read) -> None:
    call = first(program, "R.shape_of(x)")
    assert isinstance(call, m.CallOperator)
    assert not isinstance(call.var.type, ScalarType)
    assert isinstance(first(program, "R.shape_to_tensor(s)"), m.CallOperator)


EXPORTED_KERNEL = """
        @T.prim_func
        def check(k: T.int64):
            T.func_attr({"global_symbol": "other"})
            T.evaluate(k)
"""


def test_a_kernel_may_be_called_by_the_symbol_that_it_is_exported_as(program: Read) -> None:
    call = first(program, 'R.call_packed("other", m, ty_args=R.Tuple())', EXPORTED_KERNEL)
    assert isinstance(call, m.CallKernel)
    assert (call.kernel, call.arguments) == ("check", (m.Scalar(N),))
    call = first(program, 'R.call_packed("check", m, ty_args=R.Tuple())', EXPORTED_KERNEL)
    assert isinstance(call, m.CallPacked)
