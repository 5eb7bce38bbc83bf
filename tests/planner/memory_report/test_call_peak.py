from __future__ import annotations

from collections.abc import Mapping

import pytest

from symalloc.analysis.call_memory import CalleeMemory, CallMemory, HeldMemory
from symalloc.analysis.tensor_origin import OperatorCall, TensorOrigin
from symalloc.planner.memory_report.call_peak import CallPeak, call_peak
from symalloc.program.ir import Var
from symalloc.program.types import OpaqueType
from symalloc.size.expr import Expr, constant, symbol

N = symbol("n")
A, B, C, OUT = (Var(name, OpaqueType()) for name in ("a", "b", "c", "out"))
ORIGINS = {A: TensorOrigin(operator="gelu", variable="x"), B: TensorOrigin(operator="matmul")}


def held(var: Var, size: Expr | int | None, begin: int, end: int) -> HeldMemory:
    known = constant(size) if isinstance(size, int) else size
    return HeldMemory(size=known, begin=begin, end=end, var=var)


def calls(*touched: tuple[int, str, set[Var]]) -> tuple[OperatorCall, ...]:
    return tuple(OperatorCall(point=p, operator=name, touches=frozenset(of)) for p, name, of in touched)


# a waits for the call at 7 while b and c are used
MEMORY = CallMemory(
    fresh=(held(A, 64 * N, 0, 7), held(B, 128 * N, 2, 5), held(C, 64, 4, 7)),
    results=(held(OUT, 192, 6, 9),),
    calls=calls((1, "gelu", {A}), (3, "matmul", {B}), (5, "softmax", {B, C}), (7, "add", {A, C, OUT})),
)


def peak(memory: CallMemory, binding: Mapping[str, int]) -> CallPeak:
    found = call_peak(memory, binding, ORIGINS)
    assert found is not None and found.nbytes == memory.peak(binding, results=True)
    assert sum(t.nbytes for t in found.tensors) == found.nbytes
    return found


def test_the_peak_names_the_call_and_what_is_alive_by_size() -> None:
    found = peak(MEMORY, {"n": 10})
    assert (found.operator, found.step, found.steps) == ("softmax", 3, 4)
    assert [(t.name, t.nbytes, t.until, t.idle) for t in found.tensors] == [
        ("b", 1280, "softmax", False),
        ("a", 640, "add", True),
        ("c", 64, "add", False),
    ]
    assert str(found.tensors[1].origin) == "x = gelu"


def test_the_remedy_leaves_the_least_peak_wherever_that_is_then() -> None:
    found = peak(MEMORY, {"n": 10})
    assert found.remedy is not None and (found.remedy.name, found.without) == ("b", 640 + 64 + 192)
    small = peak(MEMORY, {"n": 1})  # the result counts most at small shapes
    assert small.operator == "add"
    assert small.remedy is not None and (small.remedy.kind, small.without) == ("result", 256)


def test_of_tensors_that_matter_alike_the_idle_one_is_the_remedy() -> None:
    memory = CallMemory(
        fresh=(held(A, 64, 0, 5), held(B, 64, 0, 3)), calls=calls((3, "exp", {B}), (5, "add", {A}))
    )
    found = peak(memory, {})
    assert found.remedy is not None and found.remedy.name == "a" and found.remedy.idle


def test_two_peaks_alike_have_no_single_remedy() -> None:
    memory = CallMemory(
        fresh=(held(A, 64, 0, 1), held(B, 64, 2, 3)), calls=calls((1, "f", {A}), (3, "g", {B}))
    )
    assert peak(memory, {}).remedy is None


def test_what_a_callee_holds_stands_under_its_name_and_the_worst_path_counts() -> None:
    inner = CallMemory(fresh=(held(B, 64 * symbol("m"), 0, 1),), calls=calls((1, "exp", {B})))
    called = CalleeMemory(point=3, memory=inner, values={"m": 2 * N}, name="layer")
    path = CallMemory(
        fresh=(held(A, 64, 0, 5),), callees=(called,), calls=calls((3, "layer", {A}), (5, "add", {A}))
    )
    found = peak(CallMemory(paths=(CallMemory(), path)), {"n": 3})
    assert [(t.name, t.nbytes, t.kind) for t in found.tensors] == [
        ("layer.b", 384, "callee"),
        ("a", 64, "tensor"),
    ]
    assert found.operator == "layer"


@pytest.mark.parametrize("unknown", [None, symbol("k")])
def test_a_size_that_is_not_known_leaves_the_peak_unknown(unknown: Expr | None) -> None:
    assert call_peak(CallMemory(fresh=(held(A, unknown, 0, 1),)), {"n": 1}, {}) is None


def test_a_call_that_holds_nothing_has_no_tensors_at_its_peak() -> None:
    found = peak(CallMemory(fresh=(held(A, 64 * N, 0, 1),)), {"n": 0})
    assert (found.nbytes, found.tensors, found.operator) == (0, (), "")
