"""Tensors at a byte offset: who may be handed one, and through what it keeps it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from symalloc.linter.diagnostic import Severity
from symalloc.program.ir import Function, If, Kernel, Ownership, Program, Var
from symalloc.program.types import TupleType
from tests.linter.engine_run import findings
from tests.program.build import Body, buffer, param, program_of, tensor_of

NOTHING = TupleType(fields=())
KERNELS = {
    "strict": Kernel(name="strict", parameters=(buffer("a", 8, reads=False),)),
    "lenient": Kernel(name="lenient", parameters=(buffer("a", 8, reads=False, offset_factor=64),)),
}


def placed(body: Body, offset: int | str = 64, storage: Var | None = None) -> Var:
    return body.tensor(storage or body.storage("n + 512"), 8, offset=offset)


def program(body: Body, *others: Function) -> Program:
    return program_of(body.finish(), *others, kernels=KERNELS)


def packed(body: Body, name: str, *arguments: Var) -> None:
    body.packed(name, *arguments, kind=NOTHING, ownership=Ownership.FRESH)


@pytest.mark.parametrize("how", ["itself", "alias", "reshape", "cast", "tuple", "field", "view"])
def test_an_offset_is_kept_by_all_that_is_no_fold(how: str) -> None:
    body = Body()
    tensor = placed(body)
    if how == "alias":
        tensor = body.alias(tensor)
    elif how == "reshape":
        tensor = body.reshape(tensor, 2, 4)
    elif how == "cast":
        tensor = body.cast(tensor, 8)
    elif how == "view":
        tensor = body.view(placed(body, 0), 8, offset=64)
    elif how in ("tuple", "field"):
        both = body.tuple(tensor, placed(body, 0))
        tensor = both if how == "tuple" else body.take(both, 0)
    packed(body, "tvm.contrib.sort.sort", tensor)
    (found,) = findings(program(body), "SYM112")
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize("how", ["at byte 0", "folded"])
def test_what_begins_at_byte_zero_goes_anywhere(how: str) -> None:
    body = Body()
    tensor = placed(body, 0) if how == "at byte 0" else body.settle(placed(body))
    packed(body, "tvm.contrib.sort.sort", tensor)
    assert not findings(program(body), "SYM112")


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("tvm.contrib.sort.argsort", Severity.ERROR),
        ("vm.builtin.tensor_to_shape", Severity.ERROR),
        ("relax.run.nonzero", None),
        ("vm.builtin.to_device", None),
        ("somebody.elses", Severity.WARNING),
    ],
)
def test_packed_functions_are_told_apart(name: str, severity: Severity | None) -> None:
    body = Body()
    packed(body, name, placed(body))
    assert [d.severity for d in findings(program(body), "SYM112")] == ([severity] if severity else [])


def test_an_offset_that_may_be_zero_is_an_error_all_the_same() -> None:
    body = Body(param("x", "n"))
    packed(body, "tvm.contrib.sort.sort", placed(body, "64*n"))
    (found,) = findings(program(body), "SYM112")
    assert (found.severity, found.counterexample) == (Severity.ERROR, {"n": 1})


def test_a_condition_is_read_at_its_pointer() -> None:
    body = Body()
    test = placed(body)
    body.branch(lambda: body.alias(test), lambda: body.alias(test))
    (branch,) = (i for i in body.blocks[0] if isinstance(i, If))
    body.blocks[0][-1] = replace(branch, test=test)
    (found,) = findings(program(body), "SYM112")
    assert found.message.startswith("the test of an If overlooks")


def joined(body: Body, first: int, second: int) -> Var:
    """A tensor at one of two offsets."""
    storage = body.storage(512)
    return body.branch(lambda: placed(body, first, storage), lambda: placed(body, second, storage))


@pytest.mark.parametrize(("first", "second", "faulty"), [(64, 128, True), (0, 64, True), (0, 0, False)])
def test_both_branches_of_an_if_count(first: int, second: int, faulty: bool) -> None:
    body = Body()
    packed(body, "tvm.contrib.sort.sort", joined(body, first, second))
    assert bool(findings(program(body), "SYM112")) is faulty
    body = Body()
    body.call("strict", joined(body, first, second))
    assert bool(findings(program(body), "SYM303")) is faulty
    body = Body()
    body.call("lenient", joined(body, first, second))
    assert not findings(program(body), "SYM303")
    body = Body()
    body.call("strict", body.settle(joined(body, first, second)))
    assert not findings(program(body), "SYM303")


@pytest.mark.parametrize(
    ("kernel", "faulty"), [("strict", True), ("lenient", False), ("packed", True), (None, False)]
)
def test_a_callee_hands_its_parameter_on(kernel: str | None, faulty: bool) -> None:
    inner = Body(param("p", 8), name="inner")
    if kernel == "packed":
        packed(inner, "tvm.contrib.sort.sort", inner.params[0])
    elif kernel is not None:
        inner.call(kernel, inner.params[0])
    middle = Body(param("a", 8), param("b", 8), name="middle")
    middle.function("inner", middle.params[1], kind=NOTHING)
    body = Body()
    body.function("middle", placed(body), placed(body, 0), kind=NOTHING)
    assert not findings(program(body, middle.finish(), inner.finish()), "SYM112")
    body.function("middle", placed(body, 0), placed(body), kind=NOTHING)
    assert bool(findings(program(body, middle.finish(), inner.finish()), "SYM112")) is faulty


def test_fields_of_a_tuple_parameter_are_told_apart() -> None:
    pair = Var("p", TupleType(fields=(tensor_of(8), tensor_of(8))))
    inner = Body(pair, name="inner")
    inner.call("strict", inner.take(pair, 1))
    body = Body()
    body.function("inner", body.tuple(placed(body), placed(body, 0)), kind=NOTHING)
    assert not findings(program(body, inner.finish()), "SYM112")
    body.function("inner", body.tuple(placed(body, 0), placed(body)), kind=NOTHING)
    assert findings(program(body, inner.finish()), "SYM112")
