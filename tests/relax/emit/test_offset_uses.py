"""Which allocations can be handed on at an offset, and where they arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import tvm

from symalloc.analysis.interprocedural import analyse
from symalloc.program.ir import AllocFresh, Function, If, Program, TupleValue, Var
from symalloc.relax.emit.kernel_offsets import OffsetUses, accepts_offset, offset_uses, with_offsets
from tests.program.build import U8, Body, param, shape, tensor_of

X = param("x", "n")


def uses(function: Function, *away: Var) -> OffsetUses:
    """Where kernels take any of their parameters at an offset."""
    program = Program(name="m", functions={function.name: function}, kernels={})
    return offset_uses(analyse(program)[function.name], lambda _: frozenset(range(8)), away)


def fresh(body: Body) -> Var:
    return body.emit(AllocFresh(var=body.var(tensor_of("n")), shape=shape("n"), dtype=U8))


USERS: dict[str, Callable[[Body, Var], object]] = {
    "packed function": lambda body, a: body.packed("some.function", a),
    "Relax function": lambda body, a: body.function("other", a, kind=a.type),
    "alias": lambda body, a: body.packed("some.function", body.alias(a)),
    "view": lambda body, a: body.packed("some.function", body.reshape(a, "n", 1)),
    "cast": lambda body, a: body.packed("some.function", body.cast(a, "n")),
    "tuple": lambda body, a: body.packed("some.function", body.tuple(X, a)),
    "tuple literal": lambda body, a: body.packed("some.function", TupleValue((X, a)), kind=a.type),
    "field": lambda body, a: body.packed("some.function", body.take(body.tuple(a, X), 0)),
    "tuple given to a kernel": lambda body, a: body.call("read", TupleValue((a,))),
    "branch": lambda body, a: body.packed("some.function", body.branch(lambda: a, lambda: X)),
    "other branch": lambda body, a: body.packed("some.function", body.branch(lambda: X, lambda: a)),
    "inside a branch": lambda body, a: body.branch(lambda: body.packed("some.function", a), lambda: X),
}


@pytest.mark.parametrize("user", USERS)
def test_whoever_may_look_at_the_bare_pointer_wants_it_settled(user: str) -> None:
    body = Body(X)
    a, b = fresh(body), fresh(body)
    body.call("copy", X, a)
    USERS[user](body, a)
    found = uses(body.finish(), a, b)
    assert (found.needs_zero_offset, found.offset_parameters) == ({a}, {})


def test_the_result_and_the_test_of_an_if_are_settled() -> None:
    body = Body(X)
    test, result, other = fresh(body), fresh(body), fresh(body)
    body.branch(lambda: X, lambda: other)
    (*before, branch) = body.blocks[0]
    assert isinstance(branch, If)
    body.blocks[0] = [*before, replace(branch, test=test)]
    assert uses(body.finish(result), test, result, other).needs_zero_offset == {test, result}


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
    def beside(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        start = T.int64()
        rows = T.match_buffer(a, (n,), "float32", elem_offset=start, offset_factor=1)
        others = T.match_buffer(b, (n,), "float32", elem_offset=start, offset_factor=1)
        target = T.match_buffer(c, (n,), "float32")
        target[0] = rows[0] + others[0]

    @T.prim_func
    def told(start: T.int64, a: T.handle):
        n = T.int64()
        rows = T.match_buffer(a, (n,), "float32", elem_offset=start, offset_factor=1)
        rows[0] = T.float32(1)
"""
_MATCHED = """
    @T.prim_func
    def {}(a: T.handle):
        n, start = T.int64(), T.int64()
        rows = T.match_buffer(a, (n,), "int64", {})
        rows[0] = {}
"""
_KERNELS += _MATCHED.format("strided", "strides=(start,)", 1)
_KERNELS += _MATCHED.format("shifted", "elem_offset=start, offset_factor=4", 1)
_KERNELS += _MATCHED.format("odd", "elem_offset=start, offset_factor=24", 1)
_KERNELS += _MATCHED.format("looked_at", "elem_offset=start, offset_factor=1", "start")
KERNELS = {v.name_hint: f for v, f in tvm.script.from_source(_KERNELS).functions_items()}


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("double", {0, 1}),
        ("narrow", {0, 1}),
        ("extern", {1}),  # the pointer of `a` is handed on
        ("address", {1}),
        ("strided", set()),
        ("shifted", {0}),  # any multiple of 4 elements will do: 64 B are 8
        ("odd", set()),  # 64 B are no multiple of 24 elements
        ("beside", {2}),  # both must begin at one offset
        ("told", set()),
        ("looked_at", set()),
    ],
)
def test_which_parameters_can_be_moved(name: str, positions: set[int]) -> None:
    assert accepts_offset(KERNELS[name]) == positions


@pytest.mark.parametrize(("name", "dtype"), [("double", "float32"), ("narrow", "float16")])
def test_a_moved_kernel_takes_multiples_of_64_bytes_and_zero(name: str, dtype: str) -> None:
    moved = with_offsets(KERNELS[name], {0, 1})
    built = tvm.compile(tvm.IRModule({name: moved}), target="llvm")
    for first, second in ((0, 64), (64, 0), (128, 192)):
        storage = tvm.runtime.tensor(np.arange(64, dtype="float32"))
        source, target = (
            storage._create_view((16,), dtype, relative_byte_offset=offset) for offset in (first, second)
        )
        expected = source.numpy() * (2 if name == "double" else 1)
        built[name](source, target)
        assert target.numpy().tobytes() == expected.tobytes()
