"""Reading packing problems: what is understood, and what is said of what is not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.packing.packing_problem import (
    Packing,
    PackingProblem,
    ProblemError,
    pack_problem,
    problem_of,
    read_csv,
    read_json,
)
from symalloc.planner.stack import SearchBudget
from symalloc.size.expr import constant, symbol
from tests.planner.brute_stackings import all_heights, floor_at

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
    assert read_json('{"buffers": []}', "file").name == "file"


def test_csv_is_read_whatever_the_order_of_its_columns() -> None:
    text = "\nsize,id,upper,lower\n".lstrip() + "4,x,3,0\n\n 8 , y , 5 , 2\n"
    problem = read_csv(text, "file")
    assert [(b.name, b.size, *b.live[0], b.alignment) for b in problem.buffers] == [
        ("x", constant(4), 0, 3, 1),
        ("y", constant(8), 2, 5, 1),
    ]
    assert problem.table == (("size", "id", "upper", "lower"), ("4", "x", "3", "0"), ("8", "y", "5", "2"))


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
        (with_buffer(size="n < 3"), "buffers[0] (`a`).size: a condition where a size is expected"),
        (with_buffer(size="8 // 0"), "buffers[0] (`a`).size: division by zero"),
        (with_buffer(size=-4), "buffers[0] (`a`).size: -4 is negative"),
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
        ("id,lower,upper,size\na,1,2,1e3\n", "line 2, size: `1e3` is no integer"),
        ("id,lower,upper,size\na,1,2,-3\n", "line 2 (`a`).size: -3 is negative"),
        ("id,lower,upper,size\na,2,2,3\n", "line 2 (`a`): it is never live"),
        ("id,lower,upper,size\na,1,2,3\na,2,3,4\n", "two buffers have the id `a`"),
        ('id,lower,upper,size\n"a,1,2,3\n', "not CSV"),
        ("id,begin,lower,upper,size\n", "line 1: two columns are named `begin` and `lower`"),
        ("id,lower,upper,size,gaps\na,1,9,3,4\n", "line 2, gaps: they are written such as `3-5 7-9`"),
        ("id,lower,upper,size,gaps\na,1,9,3,0-20\n", "line 2 (`a`).gaps: it is never live"),
        ("id,lower,upper,size,offset\na,1,9,3,-1\n", "line 2 (`a`).offset: -1 is not between 0 and"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        read_csv(text, "file")
    assert said in str(caught.value)


SIZES = ("4*n", "n*n*2", "64*n", "96*n*m", "m*640", "4096", "32", "0", "max(n, m)*64", "(n+1)//2*128")
POINTS = [{"n": n, "m": m} for n in (1, 2, 33, 4096) for m in (1, 3, 700)]
QUICK = SearchBudget.of("quick")


def problem(
    rows: Sequence[tuple[str | int, int, int]], *alignments: int, symbols: dict[str, Any] | None = None
) -> PackingProblem:
    """The last alignment is that of all further rows; 64, if there is none."""
    given = [*alignments, *([alignments[-1] if alignments else 64] * len(rows))]
    buffers = [
        {"id": f"b{i}", "size": size, "lower": lower, "upper": upper, "alignment": given[i]}
        for i, (size, lower, upper) in enumerate(rows)
    ]
    return problem_of({"symbols": {"n": {}, "m": {}} if symbols is None else symbols, "buffers": buffers})


@st.composite
def problems(draw: st.DrawFn) -> PackingProblem:
    rows = []
    for _ in range(draw(st.integers(1, 9))):
        lower = draw(st.integers(0, 8))
        rows.append((draw(st.sampled_from(SIZES)), lower, draw(st.integers(lower + 1, 10))))
    return problem(rows, *draw(st.lists(st.sampled_from((1, 16, 64, 256)), min_size=1, max_size=3)))


def check(packing: Packing, binding: dict[str, int]) -> None:
    """Every pair that is live together is disjoint, all lies inside the arena, at aligned offsets."""
    arena = packing.arena.evaluate(binding)
    spans = []
    for b in packing.problem.buffers:
        start, size = packing.offsets[b.name].evaluate(binding), b.size.evaluate(binding)
        assert start % b.alignment == 0
        assert start >= 0 and start + size <= arena
        spans.append((b, start, start + size))
    for (a, start, end), (b, begin, stop) in combinations(spans, 2):
        if max(a.live[0][0], b.live[0][0]) < min(a.live[0][1], b.live[0][1]):
            assert end <= begin or stop <= start or end == start or begin == stop


@settings(max_examples=25)
@given(problems())
def test_a_packing_is_right_at_every_binding(found: PackingProblem) -> None:
    packing = pack_problem(found, budget=QUICK)
    for binding in POINTS:
        check(packing, binding)
    buffers = found.buffers
    for ratio in packing.ratios[:: max(len(packing.ratios) // 20, 1)]:
        binding = {"n": 1, "m": 1, **ratio.binding}
        assert ratio.floor == floor_at(buffers, binding) <= ratio.bytes
        assert ratio.bytes == packing.arena.evaluate(binding)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from((1, 3, 4, 7, 10)), st.integers(0, 5), st.integers(1, 4)),
        min_size=1,
        max_size=7,
    )
)
def test_a_static_packing_is_the_lowest_there_is(rows: list[tuple[int, int, int]]) -> None:
    found = problem([(size, lower, lower + length) for size, lower, length in rows], 1)
    packing = pack_problem(found, budget=QUICK)
    check(packing, {})
    assert packing.arena == min(all_heights(found.buffers, [{}]))[0]


def test_it_goes_past_declared_bounds_in_both_directions() -> None:
    rows = [("4096", 0, 2), ("64*n", 1, 4), ("4096", 3, 6), ("64*n", 5, 8)]
    packing = pack_problem(problem(rows, symbols={"n": {"min": 16, "max": 32}}), budget=QUICK)
    for n in (1, 15, 64, 100_000):
        check(packing, {"n": n})
    assert max(r.binding["n"] for r in packing.ratios) >= 4096
    assert packing.worst_ratio == 1


def test_no_more_is_asked_of_sizes_than_the_declared_minimum_gives() -> None:
    rows = [("64*n - 256", 0, 2), ("64", 1, 3)]
    packing = pack_problem(problem(rows, symbols={"n": {"min": 4}}), budget=QUICK)
    check(packing, {"n": 4})
    with pytest.raises(ProblemError, match=r"buffers\[0\] \(`b0`\).size: .* makes sense only where n >= 4"):
        pack_problem(problem(rows, symbols={"n": {"min": 3}}), budget=QUICK)
    with pytest.raises(ProblemError, match="makes sense only where n >= 2"):
        pack_problem(problem([("8 // (n - 1)", 0, 1)], symbols={"n": {}}), budget=QUICK)


# greedy packings are a third above the floor here, either for small n or for large
CROSSED = [
    *(("128*n", 3, 5), ("64*n", 4, 7), ("64*n", 2, 4)),
    *(("64*n", 1, 3), ("4096", 0, 3), ("64*n", 0, 2)),
]


def test_local_search_is_at_the_floor_there() -> None:
    found = problem(CROSSED, symbols={"n": {}})
    greedy = pack_problem(found, budget=replace(QUICK, work=0))
    packing = pack_problem(found, budget=QUICK)
    assert packing.worst_ratio == 1 < greedy.worst_ratio
    for n in range(1, 200):
        check(packing, {"n": n})
        check(greedy, {"n": n})


def test_a_capacity_is_kept_where_one_exists_and_the_overrun_named_where_not() -> None:
    found = problem([("64*n", 0, 2), ("128", 1, 3)], symbols={"n": {"max": 8}})
    assert pack_problem(found, budget=QUICK, capacity=640).overrun is None
    overrun = pack_problem(found, budget=QUICK, capacity=639).overrun
    assert overrun == {"n": 8}
    endless = problem([("64*n", 0, 2)], symbols={"n": {}})
    overrun = pack_problem(endless, budget=QUICK, capacity=640).overrun
    assert overrun is not None and overrun["n"] == 11


def test_a_static_packing_within_a_capacity() -> None:
    found = problem([(4, 0, 3), (4, 3, 9), (4, 0, 9), (4, 9, 21), (4, 0, 21)], 1)
    fitting = pack_problem(found, budget=QUICK, capacity=12)
    assert fitting.overrun is None and fitting.arena == 12
    assert pack_problem(found, budget=QUICK, capacity=11).overrun == {}


def test_what_is_fixed_stays_and_the_rest_lies_around_it() -> None:
    table = "id,lower,upper,size,offset\na,0,4,8,16\nb,2,6,16,\nc,0,9,4,\n"
    packing = pack_problem(read_csv(table, "file"), budget=QUICK)
    check(packing, {})
    assert packing.offsets["a"] == 16 and (packing.arena, packing.worst_ratio) == (28, 1)
    with pytest.raises(ProblemError, match="`a` and `c` overlap at the offsets that are given for them"):
        pack_problem(read_csv(table.replace("c,0,9,4,", "c,3,9,4,20"), "file"), budget=QUICK)
    assert pack_problem(read_csv(table.replace("c,0,9,4,", "c,4,9,4,20"), "file"), budget=QUICK).arena == 24
    over = pack_problem(read_csv(table, "file"), budget=QUICK, capacity=27)
    assert over.overrun == {} and over.arena == 28


def test_a_packing_of_many_is_found_in_little_memory_whatever_is_live_together() -> None:
    """4,000,000 pairs: neither neighbours nor moments are listed."""
    rows = [f"{i},{i % 9},{9 + i % 50},{4096 * (1 + i % 31)}" for i in range(3000)]
    packing = pack_problem(read_csv("id,lower,upper,size\n" + "\n".join(rows), "file"), budget=QUICK)
    assert packing.worst_ratio == 1
