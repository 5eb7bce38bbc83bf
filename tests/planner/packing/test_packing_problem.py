"""Reading packing problems: what is understood, and what is said of what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from symalloc.planner.packing.packing_problem import (
    PackingProblem,
    ProblemError,
    problem_of,
    read_csv,
    read_json,
)
from symalloc.size.expr import constant, symbol

N = symbol("n")


def document(**changes: Any) -> dict[str, Any]:
    return {
        "name": "p",
        "symbols": {"n": {"min": 1, "max": 8}},
        "buffers": [
            {"id": "a", "size": "4*n", "lower": 0, "upper": 2, "alignment": 64},
            {"id": "b", "size": 96, "lower": 1, "upper": 3},
        ],
        **changes,
    }


def with_buffer(**changes: Any) -> dict[str, Any]:
    whole = document()
    whole["buffers"][0].update(changes)
    return whole


def test_json_is_read() -> None:
    problem = read_json(json.dumps(document(symbols={"n": {"min": 2, "max": None}, "m": {}})), "file")
    a, b = problem.buffers
    assert (problem.name, problem.table) == ("p", None)
    assert problem.ranges == {"n": (2, None), "m": (1, None)}
    assert (a.name, a.size, a.live, a.alignment) == ("a", 4 * N, ((0, 2),), 64)
    assert (b.size, b.alignment) == (constant(96), 64)
    assert problem.symbols == {"n"}


def test_a_problem_without_a_name_takes_that_of_its_file() -> None:
    assert read_json('{"buffers": []}', "file").name == "file"


def test_csv_is_read_whatever_the_order_of_its_columns() -> None:
    text = "\nsize,id,upper,lower\n".lstrip() + "4,x,3,0\n\n 8 , y , 5 , 2\n"
    problem = read_csv(text, "file")
    assert [(b.name, b.size, *b.live[0], b.alignment) for b in problem.buffers] == [
        ("x", constant(4), 0, 3, 1),
        ("y", constant(8), 2, 5, 1),
    ]
    assert problem.table == (("size", "id", "upper", "lower"), ("4", "x", "3", "0"), ("8", "y", "5", "2"))


def test_csv_may_give_alignments() -> None:
    problem = read_csv("id,lower,upper,size,alignment\nx,0,1,4,256\n", "file")
    assert problem.buffers[0].alignment == 256


MINIMALLOC = """buffer_id,begin,end,size,hint,gaps,alignment,offset
a,0,4,8,-1,,4,8
b,1,9,4,16,3-4 6-7@0:2 20-30,2,
"""


def test_columns_of_minimalloc_are_read_by_all_their_names() -> None:
    problem = read_csv(MINIMALLOC, "file")  # an `end` is the last position
    a, b = problem.buffers
    assert (a.name, a.live, a.alignment, problem.fixed) == ("a", ((0, 5),), 4, {0: 8})
    assert (b.name, b.live, b.alignment) == ("b", ((1, 3), (5, 10)), 2)
    upper = read_csv("start,id,upper,size,gaps\n-3,x,7,1,-2-0 5-9\n", "file").buffers[0]
    assert upper.live == ((-3, -2), (0, 5))
    same = document(symbols={})
    same["buffers"] = [
        {"id": "x", "size": 8, "lower": -3, "upper": 7, "gaps": [[5, 9], [-2, 0]], "offset": 64}
    ]
    assert problem_of(same).buffers[0].live == upper.live and problem_of(same).fixed == {0: 64}


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (document(sybols={}), "unknown key `sybols`; did you mean `symbols`?"),
        (with_buffer(aligment=64), "buffers[0]: unknown key `aligment`; did you mean `alignment`?"),
        (document(symbols={"n": {"mox": 3}}), "symbols: unknown key `mox`; did you mean `max`?"),
        (with_buffer(size="4*n+"), "buffers[0] (`a`).size: syntax error"),
        (with_buffer(size="4*m"), "buffers[0] (`a`).size: `m` is not among the symbols"),
        (with_buffer(size="m*0"), "`m` is not among the symbols"),
        (with_buffer(size="n < 3"), "buffers[0] (`a`).size: a condition where a size is expected"),
        (with_buffer(size="8 // 0"), "buffers[0] (`a`).size: division by zero"),
        (with_buffer(size=-4), "buffers[0] (`a`).size: -4 is negative"),
        (with_buffer(size="2 - 6"), "buffers[0] (`a`).size: -4 is negative"),
        (with_buffer(size=1.5), "buffers[0].size: expected `int | str`, got `float`"),
        (with_buffer(lower=2), "it is never live: lower 2 is not below upper 2"),
        (with_buffer(alignment=0), "buffers[0] (`a`).alignment: 0 is not between 1 and"),
        (with_buffer(id="b"), "two buffers have the id `b`"),
        (with_buffer(id=""), "the id of a buffer is empty"),
        (document(symbols={"n": {"min": 9, "max": 8}}), "symbols.n: max 8 is less than min 9"),
        (document(symbols={"n": {"min": -1}}), "symbols.n.min: -1 is negative"),
        (document(symbols={"n": {}, "2x": {}}), "symbols.2x: `2x` is no name for a symbol"),
        (document(symbols={"n": {}, "Max": {}}), "symbols.Max: `Max` is no name for a symbol"),
        (document(buffers={}), "buffers: expected `array`"),
        (with_buffer(gaps=[[0, 1], [1, 2]]), "buffers[0] (`a`).gaps: it is never live"),
        (with_buffer(offset=8), "buffers[0] (`a`).offset: 8 is no multiple of its alignment 64"),
        (with_buffer(offset=-64), "buffers[0] (`a`).offset: -64 is not between 0 and"),
        (with_buffer(offset=64), "buffers[0] (`a`).offset: offsets are given where all sizes are numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_refused(bad: dict[str, Any], said: str) -> None:
    for read in (lambda: problem_of(bad), lambda: read_json(json.dumps(bad), "file")):
        with pytest.raises(ProblemError) as caught:
            read()
        assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]"], ids=["empty", "cut", "deep", "list"])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(ProblemError):
        read_json(text, "file")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is nothing in it"),
        ("id,lower,uper,size\n", "line 1: unknown column `uper`; did you mean `upper`?"),
        ("id,lower,upper\n", "line 1: there is no column `size`"),
        ("id,lower,upper,size,size\n", "line 1: two columns are named `size`"),
        ("id,lower,upper,size\na,1,2\n", "line 2: 3 cells under 4 columns"),
        ("id,lower,upper,size\na,1,2,x\n", "line 2, size: `x` is no integer"),
        ("id,lower,upper,size\na,1,2,1e3\n", "line 2, size: `1e3` is no integer"),
        ("id,lower,upper,size\na,1,2,-3\n", "line 2 (`a`).size: -3 is negative"),
        ("id,lower,upper,size\na,2,2,3\n", "line 2 (`a`): it is never live"),
        ("id,lower,upper,size\na,1,2,3\na,2,3,4\n", "two buffers have the id `a`"),
        ('id,lower,upper,size\n"a,1,2,3\n', "not CSV"),
        ("id,begin,lower,upper,size\n", "line 1: two columns are named `begin` and `lower`"),
        ("id,lower,upper,size,gaps\na,1,9,3,4\n", "line 2, gaps: they are written such as `3-5 7-9`"),
        ("id,lower,upper,size,gaps\na,1,9,3,0-20\n", "line 2 (`a`).gaps: it is never live"),
        ("id,lower,upper,size,offset\na,1,9,3,x\n", "line 2, offset: `x` is no integer"),
        ("id,lower,upper,size,offset\na,1,9,3,-1\n", "line 2 (`a`).offset: -1 is not between 0 and"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        read_csv(text, "file")
    assert said in str(caught.value)


def test_the_header_alone_is_a_problem_without_buffers() -> None:
    assert read_csv("id,lower,upper,size\n", "file") == PackingProblem(
        name="file", buffers=(), table=(("id", "lower", "upper", "size"),)
    )
