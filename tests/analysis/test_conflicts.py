"""What is captured, the names of inputs and outputs that carry each other, and calls written out."""

from __future__ import annotations

from typing import TypeVar

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
from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.regions import PointsTo
from symalloc.analysis.sets import only_member
from symalloc.program import ir
from symalloc.program.ir import Operand, Ownership, TupleValue, Var
from symalloc.program.types import OpaqueType, TupleType
from symalloc.size.parse import parse_condition, parse_expr
from tests.program.build import Body, param, tensor_of


def test_captures_and_uses_on_one_path() -> None:
    body = Body(param("x", "n"), param("y", "n"))
    x, y = body.params
    body.packed("unknown", x)
    body.packed("fresh", y, ownership=Ownership.FRESH)
    analysis = analyse(body.program(y))["main"]
    found = [only_member(leaf.must) for leaf in analysis.points_to.parameters]
    roots, conflicts = [number for number in found if number is not None], analysis.conflicts
    assert [list(conflicts.capturing(root)) for root in roots] == [[0], []]
    assert conflicts.on_one_path(*roots)


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
        *("", "w", "0:w", "=w", "0=", "0=1", "a.0=w", "0=w.x"),
        *("0=w=v", "a b=c", "f:g:0=w", "0=w[]", "0=w[8]", "0=w[a", "0[a]=w", "0=w[a][b]"),
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
    steps = "first = alias x; whole = tuple first y; second = take whole 1; nested = tuple whole second"
    made = body.follow(f"{steps}; result = alias nested")
    found = outputs_of(points(body, made["result"]))
    assert [leaf.names[0] for leaf in found] == ["0.0", "0.1", "1"]
    assert found[0].names[1:] == ("first", "x")
    assert "y" in found[1].names and "y" in found[2].names
    assert found[1].cell == found[2].cell != found[0].cell
    (single,) = outputs_of(points(body, made["first"]))
    assert single.names == ("result", "first", "x")
    literal = outputs_of(points(body, TupleValue((made["x"], TupleValue((made["y"],))))))
    assert [leaf.names for leaf in literal] == [("0", "x"), ("1.0", "y")]


S, T = OpaqueType(), TypeVar("T")


def expanded(program: ir.Program, name: str = "main") -> ExpandedFunction:
    found = expand_calls(program, program.functions[name])
    assert found is not None
    return found


def callee(name: str, steps: str, *more: ir.Var, result: str = "x") -> ir.Function:
    """A private function of x, of `p` bytes, and of a storage s."""
    body = Body(param("x", "p"), ir.Var("s", S), *more, name=name)
    made = body.follow(steps)
    symbols = {"p": ir.Origin.DIMENSION, **({"n": ir.Origin.CAST} if "defines=n" in steps else {})}
    return body.finish(made[result], symbols=symbols, private=True)


def caller(of: ir.Function, *more: ir.Var, storage: str = "n") -> ir.Program:
    """A program of a function that hands its x and a storage to another."""
    body = Body(x := param("x", "n"), *more)
    made = body.function(of.name, x, body.storage(storage), *more, kind=tensor_of("n"))
    return body.program(made, of, symbols={"n": ir.Origin.DIMENSION})


def of_type(found: ExpandedFunction, kind: type[T]) -> list[T]:
    return [i for i in found.function.body.instructions if isinstance(i, kind)]


def test_symbols_of_the_callee_are_sizes_of_the_caller() -> None:
    program = caller(callee("writer", "made = tensor s p offset=2*p; copy x made"), storage="4*n")
    found = expanded(program)
    (alloc,) = of_type(found, ir.AllocTensor)
    assert alloc.offset == parse_expr("2*n")
    assert alloc.shape == (parse_expr("n"),)
    original = program.functions["writer"].body.instructions[0]
    assert found.original(alloc) is original
    assert [call.name for call in found.calls_to(alloc)] == ["writer"]
    assert isinstance(original, ir.AllocTensor) and alloc.var is not original.var


def test_what_the_callee_checks_on_entry_holds_behind_it() -> None:
    same = callee("same", "t = tensor s p; fill t", param("b", "p"))
    found = expanded(caller(same, param("y", "m")))
    (check,) = of_type(found, ir.Assert)
    assert check.condition == parse_condition("m == n")


def test_a_symbol_that_a_cast_of_the_callee_binds_gets_a_name_of_its_own() -> None:
    casts = callee("casts", "cast = cast x n defines=n; t = tensor s n; fill t", result="cast")
    found = expanded(caller(casts))
    (made,) = of_type(found, ir.MatchCast)
    assert made.defines == {"n_2"}
    assert found.function.symbols == {"n": ir.Origin.DIMENSION, "n_2": ir.Origin.CAST}


def test_a_recursion_is_written_out_so_far_and_the_rest_is_named() -> None:
    flag = ir.Var("flag", tensor_of())
    inner = Body(x := param("x", "p"), s := ir.Var("s", S), flag, name="again")
    inner.follow("t = tensor s p; fill t")
    inner.function("again", x, s, flag, kind=tensor_of("p"))
    again = inner.finish(x, symbols={"p": ir.Origin.DIMENSION}, private=True)
    found = expanded(caller(again, ir.Var("f", tensor_of())))
    allocated = of_type(found, ir.AllocTensor)
    assert len(allocated) == MOST_UNDER_WAY
    assert [len(found.calls_to(made)) for made in allocated] == [1, 2, 3]
    (left,) = found.left.values()
    assert left.call.name == "again"
    assert [v.name for v in left.repeated] == ["x", "s", "flag"]
