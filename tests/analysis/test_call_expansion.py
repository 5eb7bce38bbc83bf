"""Calls written out: variables and symbols of a callee, what is written out, and where it ends."""

from __future__ import annotations

from symalloc.analysis.call_expansion import (
    MOST_UNDER_WAY,
    ExpandedFunction,
    expand_calls,
)
from symalloc.program import ir
from symalloc.program.types import OpaqueType, TensorType
from symalloc.size.parse import parse_condition, parse_expr
from tests.program.build import Body, param, program_of, tensor_of

S = OpaqueType()


def expanded(program: ir.Program, name: str = "main") -> ExpandedFunction:
    found = expand_calls(program, program.functions[name])
    assert found is not None
    return found


def writer() -> ir.Function:
    """Places `p` bytes on the storage that it is handed, and writes them."""
    x, s = param("x", "p"), ir.Var("s", S)
    body = Body(x, s, name="writer")
    made = body.tensor(s, "p", offset="2*p")
    body.call("copy", x, made)
    return body.finish(made, symbols={"p": ir.Origin.DIMENSION}, private=True)


def test_symbols_of_the_callee_are_sizes_of_the_caller() -> None:
    body = Body(x := param("x", "n"))
    made = body.function("writer", x, body.storage("4*n"), kind=tensor_of("n"))
    program = body.program(made, writer())
    found = expanded(program)
    (alloc,) = (i for i in found.function.body.instructions if isinstance(i, ir.AllocTensor))
    assert alloc.offset == parse_expr("2*n")
    assert alloc.shape == (parse_expr("n"),)
    original = program.functions["writer"].body.instructions[0]
    assert found.original(alloc) is original
    assert [call.name for call in found.calls_to(alloc)] == ["writer"]
    assert alloc.var is not original.var


def test_what_the_callee_checks_on_entry_holds_behind_it() -> None:
    s = Body(x := param("x", "n"), y := param("y", "m"))
    a, b, t = param("a", "p"), param("b", "p"), ir.Var("t", S)
    inner = Body(a, b, t, name="same")
    inner.call("fill", inner.tensor(t, "p"))
    callee = inner.finish(symbols={"p": ir.Origin.DIMENSION}, private=True)
    s.function("same", x, y, s.storage("n"), kind=TensorType(shape=None, dtype=None))
    found = expanded(program_of(s.finish(), callee))
    (check,) = (i for i in found.function.body.instructions if isinstance(i, ir.Assert))
    assert check.condition == parse_condition("m == n")


def test_a_symbol_that_a_cast_of_the_callee_binds_gets_a_name_of_its_own() -> None:
    inner = Body(a := param("a", "p"), s := ir.Var("s", S), name="casts")
    cast = inner.cast(a, "n", defines=["n"])
    inner.call("fill", inner.tensor(s, "n"))
    symbols = {"p": ir.Origin.DIMENSION, "n": ir.Origin.CAST}
    callee = inner.finish(cast, symbols=symbols, private=True)
    body = Body(x := param("x", "n"))
    body.function("casts", x, body.storage("n"), kind=tensor_of("n"))
    found = expanded(program_of(body.finish(symbols={"n": ir.Origin.DIMENSION}), callee))
    (made,) = (i for i in found.function.body.instructions if isinstance(i, ir.MatchCast))
    assert made.defines == {"n_2"}
    assert found.function.symbols == {"n": ir.Origin.DIMENSION, "n_2": ir.Origin.CAST}


def test_a_recursion_is_written_out_so_far_and_the_rest_is_named() -> None:
    x, s, flag = param("x", "p"), ir.Var("s", S), ir.Var("flag", tensor_of())
    inner = Body(x, s, flag, name="again")
    inner.call("fill", inner.tensor(s, "p"))
    inner.function("again", x, s, flag, kind=tensor_of("p"))
    callee = inner.finish(x, symbols={"p": ir.Origin.DIMENSION}, private=True)
    body = Body(y := param("y", "n"), f := ir.Var("f", tensor_of()))
    body.function("again", y, body.storage("n"), f, kind=tensor_of("n"))
    found = expanded(program_of(body.finish(), callee))
    allocated = [i for i in found.function.body.instructions if isinstance(i, ir.AllocTensor)]
    assert len(allocated) == MOST_UNDER_WAY
    assert [len(found.calls_to(made)) for made in allocated] == [1, 2, 3]
    (left,) = found.left.values()
    assert left.call.name == "again"
    assert [v.name for v in left.repeated] == ["x", "s", "flag"]
