"""How donations are written, and what their names mean."""

from __future__ import annotations

import pytest

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
from symalloc.program.ir import Operand, TupleValue, Var
from symalloc.program.types import TupleType
from tests.program.build import Body, param, tensor_of


@pytest.mark.parametrize(
    ("text", "output", "source", "function"),
    [
        ("0=w", "0", "w", None),
        (" 1.0=caches.2 ", "1.0", "caches.2", None),
        ("new_w=w", "new_w", "w", None),
        ("step:result=state.0.1", "result", "state.0.1", "step"),
    ],
)
def test_donations(text: str, output: str, source: str, function: str | None) -> None:
    found = parse_donation(text)
    assert found == Donation(output=output, input=source, function=function)
    assert str(found) == f"{output}={source}"


@pytest.mark.parametrize(
    "text", ["", "w", "0:w", "=w", "0=", "0=1", "a.0=w", "0=w.x", "0=w=v", "a b=c", "f:g:0=w"]
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
