"""What is captured, the names of inputs and outputs that carry each other, and calls written out."""

from __future__ import annotations

import pytest

from symalloc.analysis.call_expansion import MOST_UNDER_WAY, ExpandedFunction, expand_calls
from symalloc.analysis.donation import (
    Donation,
    donated,
    function_meant,
    inputs_of,
    outputs_of,
    parse_donation,
)
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.regions import PointsTo
from symalloc.analysis.sets import only_member
from symalloc.program import ir
from symalloc.program.ir import Operand, Ownership, TupleValue, Var
from symalloc.program.types import OpaqueType, TensorType, TupleType
from symalloc.size.parse import parse_condition, parse_expr
from tests.program.build import Body, param, program_of, tensor_of


def roots(analysis: FunctionAnalysis) -> list[int]:
    numbers = (only_member(leaf.must) for leaf in analysis.points_to.parameters)
    return [number for number in numbers if number is not None]


def test_captures_and_uses_on_one_path() -> None:
    body = Body(param("x", "n"), param("y", "n"))
    x, y = body.params
    body.packed("unknown", x)
    body.packed("fresh", y, ownership=Ownership.FRESH)
    analysis = analyse(body.program(y))["main"]
    conflicts = analysis.conflicts
    assert [list(conflicts.capturing(root)) for root in roots(analysis)] == [[0], []]
    assert conflicts.on_one_path(*roots(analysis))


@pytest.mark.parametrize(
    ("text", "output", "source", "function", "capacity"),
    [
        ("0=w", "0", "w", None, None),
        (" 1.0=caches.2 ", "1.0", "caches.2", None, None),
        ("new_w=w", "new_w", "w", None, None),
        ("step:result=state.0.1", "result", "state.0.1", "step", None),
        ("step:1=state.0.1[rows]", "1", "state.0.1", "step", "rows"),
    ],
)
def test_donations(text: str, output: str, source: str, function: str | None, capacity: str | None) -> None:
    found = parse_donation(text)
    assert found == Donation(output=output, input=source, function=function, capacity=capacity)
    assert text.strip().endswith(str(found)) and str(found).startswith(f"{output}={source}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "w",
        "0:w",
        "=w",
        "0=",
        "0=1",
        "a.0=w",
        "0=w.x",
        "0=w=v",
        "a b=c",
        "f:g:0=w",
        "0=w[]",
        "0=w[8]",
        "0=w[a",
        "0[a]=w",
        "0=w[a][b]",
    ],
)
def test_what_is_no_donation(text: str) -> None:
    with pytest.raises(ValueError, match="is no alias; write OUTPUT=INPUT"):
        parse_donation(text)


def points(body: Body, result: Operand) -> PointsTo:
    return analyse(body.program(result))["main"].points_to


def test_the_names_of_inputs() -> None:
    pair = TupleType(fields=(tensor_of("n"), TupleType(fields=(tensor_of("m"),))))
    body = Body(param("x", "n"), Var("both", pair))
    found = inputs_of(points(body, body.params[0]))
    assert [leaf.names for leaf in found] == [("x",), ("both.0",), ("both.1.0",)]
    assert [(leaf.parameter, leaf.path) for leaf in found] == [(0, ()), (1, (0,)), (1, (1, 0))]
    assert len({leaf.cell.must for leaf in found}) == 3
    function = body.finish(body.params[0])
    assert donated(function, [Donation(output="0", input="both.1.0")]) == {2}


def test_which_function_is_meant() -> None:
    unnamed = [function_meant(None, names) for names in (["f"], ["f", "main"], ["f", "g"])]
    assert unnamed == ["f", "main", None]
    assert [function_meant("step", names) for names in (["step", "main"], ["main"])] == ["step", None]


def test_the_names_of_outputs() -> None:
    body = Body(param("x", "n"), param("y", "n"))
    x, y = body.params
    first = body.alias(x, "first")
    whole = body.tuple(first, y)
    nested = body.tuple(whole, body.take(whole, 1))
    found = outputs_of(points(body, body.alias(nested)))
    assert [leaf.names[0] for leaf in found] == ["0.0", "0.1", "1"]
    assert found[0].names[1:] == ("first", "x")
    assert "y" in found[1].names and "y" in found[2].names
    assert found[1].cell == found[2].cell != found[0].cell
    (single,) = outputs_of(points(body, first))
    assert single.names == ("result", "first", "x")
    literal = outputs_of(points(body, TupleValue((x, TupleValue((y,))))))
    assert [leaf.names for leaf in literal] == [("0", "x"), ("1.0", "y")]


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
