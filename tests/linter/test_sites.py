"""Sites of single instructions: kernels, views, reshapes, indices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tvm.script import from_source

import symalloc
from symalloc.linter.diagnostic import Severity
from symalloc.program import ir
from symalloc.program.types import TupleType
from symalloc.prover.domain import Verdict
from symalloc.size.expr import symbol
from tests.linter.engine_run import findings, run, verdicts
from tests.program.build import F32, Body, Size, buffer, param, program_of, tensor_of


def call_of(kernel: ir.Kernel, *arguments: ir.Var, symbols: dict[str, ir.Origin] | None = None) -> ir.Program:
    body = Body(*arguments)
    body.call(kernel.name, *arguments)
    return program_of(body.finish(symbols=symbols), kernels={kernel.name: kernel})


@pytest.mark.parametrize("scalar_first", [False, True])
def test_extents_are_held_against_a_scalar_that_a_kernel_takes(scalar_first: bool) -> None:
    """TVM checks extents against scalars, also against those that come behind the buffers."""
    parameters = (buffer("a", "k"), ir.KernelScalar(name="k"))
    arguments = (param("x", "n"), ir.Scalar(symbol("m")))
    turn = -1 if scalar_first else 1
    body = Body(param("x", "n"))
    body.call("f", *arguments[::turn])
    function = body.finish(symbols={"n": ir.Origin.DIMENSION, "m": ir.Origin.SCALAR})
    kernel = ir.Kernel(name="f", parameters=parameters[::turn])
    (found,) = findings(program_of(function, kernels={"f": kernel}), "SYM303")
    assert (found.verdict, found.guarded) == (Verdict.RUNTIME_CHECK, True)
    assert "n against m" in found.message


@pytest.mark.parametrize(
    ("argument", "what"),
    [
        (param("x", 4, dtype=F32), "dtype"),
        (param("x", 4, 1), "number of dimensions"),
        (param("x", 5), "extent 0"),
    ],
)
def test_what_a_kernel_refuses(argument: ir.Var, what: str) -> None:
    (found,) = findings(call_of(ir.Kernel(name="f", parameters=(buffer("a", 4),)), argument), "SYM303")
    assert found.verdict is Verdict.ALWAYS_INVALID
    assert what in found.message


def test_a_missing_argument() -> None:
    kernel = ir.Kernel(name="f", parameters=(buffer("a", 4), buffer("b", 4)))
    (found,) = findings(call_of(kernel, param("x", 4)), "SYM303")
    assert found.message == "number of arguments differs from what `f` takes: 1 against 2"


@pytest.mark.parametrize("how", ["kernel", "alias", "reshape", "cast", "in-place", "packed", "callee"])
def test_what_is_written_into_a_copy_and_read_elsewhere_is_an_error(how: str) -> None:
    body = Body()
    view = body.view(body.tensor(body.storage(256), 256), 8, offset=4)
    folded = body.settle(view)
    others = []
    if how == "packed":
        body.packed(
            "f", folded, pure=False, writes=[0], ownership=ir.Ownership.FRESH, kind=TupleType(fields=())
        )
    elif how == "callee":
        inner = Body(param("p", 8), name="inner")
        inner.call("fill", inner.params[0])
        body.function("inner", folded, kind=TupleType(fields=()))
        others.append(inner.finish())
    elif how == "in-place":
        body.emit(
            ir.CallTIR(
                var=ir.Var("y", tensor_of(8)),
                kernel="update",
                inputs=(folded,),
                outputs=(tensor_of(8),),
                inplace=(0,),
            )
        )
    else:
        names = {
            "alias": body.alias,
            "reshape": lambda v: body.reshape(v, 8),
            "cast": lambda v: body.cast(v, 8),
        }
        body.call("fill", names[how](folded) if how in names else folded)
    body.call("read", body.settle(view))
    program = program_of(body.finish(), *others)
    found = {d.rule: d.severity for d in findings(program, "SYM110", "SYM203")}
    assert found == {"SYM110": Severity.ERROR}


@pytest.mark.parametrize("reader", ["copy", "view", "whole", "copied before"])
@pytest.mark.parametrize("offset", [4, "n"])
def test_a_copy_that_alone_is_written_and_read_is_no_error(reader: str, offset: Size) -> None:
    body = Body(param("x", "n"))
    arena = body.tensor(body.storage("n + 256"), "n + 256")
    view = body.view(arena, 8, offset=offset)
    other = body.settle(view)
    folded = body.settle(view)
    body.call("fill", folded)
    body.call("read", {"copy": folded, "view": view, "whole": arena, "copied before": other}[reader])
    (found,) = findings(body.program(), "SYM110")
    assert found.severity is (Severity.WARNING if reader == "copy" else Severity.ERROR)


@pytest.mark.parametrize("reader", ["the caller", "who keeps it"])
def test_a_copy_of_what_others_may_read_is_an_error(reader: str) -> None:
    body = Body(param("p", 256))
    whole = body.params[0] if reader == "the caller" else body.tensor(body.storage(256), 256)
    if reader == "who keeps it":
        body.packed("keep", whole, pure=False, kind=TupleType(fields=()))
    folded = body.settle(body.view(whole, 8, offset=4))
    body.call("fill", folded)
    body.call("read", folded)
    (found,) = findings(body.program(), "SYM110")
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize("reader", ["copy", "whole", "one or the other"])
@pytest.mark.parametrize(("way", "offset"), [("tuple", 4), ("tuple", "n"), ("if", 4), ("if", "n")])
def test_a_copy_that_is_written_behind_a_tuple_or_an_if(way: str, offset: Size, reader: str) -> None:
    body = Body(param("x", "n"), param("z", 256))
    arena = body.tensor(body.storage("n + 256"), 256)
    folded = body.settle(body.view(arena, 8, offset=offset))
    if way == "tuple":
        handle = body.take(body.tuple(folded, arena), 0)
    else:
        handle = body.branch(lambda: folded, lambda: folded)
    body.call("fill", handle)
    either = body.branch(lambda: arena, lambda: body.params[1])
    body.call("read", {"copy": handle, "whole": arena}.get(reader, either))
    (found,) = findings(body.program(), "SYM110")
    assert found.severity is (Severity.WARNING if reader == "copy" else Severity.ERROR)


def test_a_part_of_what_is_handed_over_may_begin_where_no_copy_is_made() -> None:
    inner = Body(param("p", 64), name="inner")
    inner.call("fill", inner.settle(inner.view(inner.params[0], 8, offset=32)))
    body = Body()
    arena = body.tensor(body.storage(256), 256)
    body.function("inner", body.view(arena, 64, offset=32), kind=TupleType(fields=()))
    body.call("read", body.view(arena, 8, offset=64))
    assert not findings(program_of(body.finish(), inner.finish()), "SYM208", "SYM203")


def test_another_copy_that_is_only_read_is_a_warning() -> None:
    body = Body()
    view = body.view(body.tensor(body.storage(256), 256), 8, offset=4)
    body.call("read", body.settle(view))
    (found,) = findings(body.program(), "SYM108", "SYM110")
    assert (found.rule, found.severity) == ("SYM108", Severity.WARNING)


def test_a_misaligned_tensor_is_reported_where_it_is_placed_and_not_again() -> None:
    body = Body()
    body.settle(body.tensor(body.storage(256), 8, offset=4))
    assert [d.rule for d in findings(body.program(), "SYM104", "SYM108")] == ["SYM104"]


def test_offsets_of_views_of_views_add_up() -> None:
    body = Body()
    arena = body.tensor(body.storage(512), 512)
    inner = body.view(body.view(arena, 256, offset=32), 64, offset=32)
    body.settle(inner)
    assert not findings(body.program(), "SYM108")


@pytest.mark.parametrize(
    ("index", "mode", "verdict"),
    [
        (-1, "fast", Verdict.ALWAYS_INVALID),
        (0, "fast", None),
        (3, "fast", Verdict.RUNTIME_CHECK),
        (-1, "wrap", None),
    ],
)
def test_constant_indices(index: int, mode: str, verdict: Verdict | None) -> None:
    body = Body(param("x", "n", 8))
    body.check("n >= 1")
    constant = ir.ConstantTensor(type=tensor_of(), values=(index,))
    call = ir.CallOperator(
        var=ir.Var("y", tensor_of(8)),
        name="relax.take",
        arguments=(body.params[0], constant),
        attributes={"mode": mode, "axis": "0"},
    )
    body.emit(call)
    assert verdicts(body.program(), "SYM305") == ([] if verdict is None else [verdict])


def callee() -> Body:
    body = Body(param("x", "n"), name="callee")
    body.call("fill", body.tensor(body.storage(16), "n"))
    return body


def caller(extent: int | str, name: str = "main", *, of: str = "callee") -> Body:
    body = Body(param("z", extent), name=name)
    body.function(of, body.params[0], kind=TupleType(fields=()))
    return body


def test_a_need_of_a_private_function_that_all_calls_meet_is_no_finding() -> None:
    program = program_of(caller(8).finish(), callee().finish(private=True))
    result = run(program, "SYM101", "SYM304")
    assert not result.diagnostics
    assert result.summary.guarded == 1


def test_a_call_that_does_not_meet_a_need_is_reported_and_so_is_the_need() -> None:
    program = program_of(caller(17).finish(), caller(8, "other").finish(), callee().finish(private=True))
    found = {(d.rule, d.function, d.verdict) for d in findings(program, "SYM101", "SYM304")}
    assert found == {
        ("SYM101", "callee", Verdict.RUNTIME_CHECK),
        ("SYM304", "main", Verdict.ALWAYS_INVALID),
    }


def test_needs_travel_up_through_private_callers() -> None:
    def top(extent: int) -> ir.Program:
        middle = caller("m", "middle").finish(private=True)
        return program_of(caller(extent, of="middle").finish(), middle, callee().finish(private=True))

    assert not findings(top(8), "SYM101", "SYM304")
    assert {d.function for d in findings(top(20), "SYM101", "SYM304")} == {"main", "middle", "callee"}


def test_a_public_function_keeps_its_findings() -> None:
    program = program_of(caller(8).finish(), callee().finish())
    assert [d.rule for d in findings(program, "SYM101", "SYM304")] == ["SYM101"]


def test_a_guard_in_front_of_the_call_meets_the_need() -> None:
    body = Body(param("z", "m"))
    body.check("m <= 16")
    body.function("callee", body.params[0], kind=TupleType(fields=()))
    assert not findings(program_of(body.finish(), callee().finish(private=True)), "SYM101", "SYM304")


def test_recursion_ends_and_keeps_the_finding() -> None:
    body = callee()
    body.function("callee", body.params[0], kind=TupleType(fields=()))
    program = program_of(body.finish(private=True), caller(8).finish())
    assert [d.rule for d in findings(program, "SYM101", "SYM304")] == ["SYM101"]


NOTHING = TupleType(fields=())
KERNELS = {
    "strict": ir.Kernel(name="strict", parameters=(buffer("a", 8, reads=False),)),
    "lenient": ir.Kernel(name="lenient", parameters=(buffer("a", 8, reads=False, offset_factor=64),)),
}


def placed(body: Body, offset: int | str = 64, storage: ir.Var | None = None) -> ir.Var:
    return body.tensor(storage or body.storage("n + 512"), 8, offset=offset)


def program(body: Body, *others: ir.Function) -> ir.Program:
    return program_of(body.finish(), *others, kernels=KERNELS)


def packed(body: Body, name: str, *arguments: ir.Var) -> None:
    body.packed(name, *arguments, kind=NOTHING, ownership=ir.Ownership.FRESH)


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


def test_a_condition_is_read_at_its_pointer() -> None:
    body = Body()
    test = placed(body)
    body.branch(lambda: body.alias(test), lambda: body.alias(test))
    (branch,) = (i for i in body.blocks[0] if isinstance(i, ir.If))
    body.blocks[0][-1] = replace(branch, test=test)
    (found,) = findings(program(body), "SYM112")
    assert found.message.startswith("the test of an If overlooks")


def joined(body: Body, first: int, second: int) -> ir.Var:
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
    pair = ir.Var("p", TupleType(fields=(tensor_of(8), tensor_of(8))))
    inner = Body(pair, name="inner")
    inner.call("strict", inner.take(pair, 1))
    body = Body()
    body.function("inner", body.tuple(placed(body), placed(body, 0)), kind=NOTHING)
    assert not findings(program(body, inner.finish()), "SYM112")
    body.function("inner", body.tuple(placed(body, 0), placed(body)), kind=NOTHING)
    assert findings(program(body, inner.finish()), "SYM112")


def test_what_fails_for_numbers_from_1_on_may_hold_for_negative_ones() -> None:
    """At k = -5, m = 1, n = 1 the tensor lies at byte 64 of 256."""
    text = """@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", "m"), "float32"), k: R.Prim("int64")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        m = T.int64()
        size = R.shape([n * 4 - m * 64 - k * 64 - 4])
        s = R.memory.alloc_storage(size, R.prim_value(0), R.str("global"), R.dtype("uint8"))
        place = R.prim_value(T.floordiv(m + k, T.int64(-3)) * 64)
        t = R.memory.alloc_tensor(s, place, R.shape([n]), R.dtype("float32"))
        return t
"""
    (found,) = (d for d in symalloc.lint(from_source(text)) if d.rule == "SYM101")
    assert found.verdict is Verdict.RUNTIME_CHECK
