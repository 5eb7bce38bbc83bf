"""Packings of problems, judged by brute force at sample bindings."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner import stack
from symalloc.planner.packing.packing_problem import (
    Packing,
    PackingProblem,
    ProblemError,
    pack_problem,
    problem_of,
    read_csv,
)
from symalloc.planner.stack import SearchBudget
from tests.planner.brute_stackings import all_heights, floor_at

SIZES = ("4*n", "n*n*2", "64*n", "96*n*m", "m*640", "4096", "32", "0", "max(n, m)*64", "(n+1)//2*128")
POINTS = [{"n": n, "m": m} for n in (1, 2, 33, 4096) for m in (1, 3, 700)]
QUICK = SearchBudget.of("quick")


def problem(
    rows: list[tuple[str | int, int, int]], alignment: int = 64, symbols: dict[str, Any] | None = None
) -> PackingProblem:
    return problem_of(
        {
            "symbols": {"n": {}, "m": {}} if symbols is None else symbols,
            "buffers": [
                {"id": f"b{i}", "size": size, "lower": lower, "upper": upper, "alignment": alignment}
                for i, (size, lower, upper) in enumerate(rows)
            ],
        }
    )


@st.composite
def problems(draw: st.DrawFn) -> PackingProblem:
    rows = []
    for _ in range(draw(st.integers(1, 9))):
        lower = draw(st.integers(0, 8))
        rows.append((draw(st.sampled_from(SIZES)), lower, draw(st.integers(lower + 1, 10))))
    return problem(rows, alignment=draw(st.sampled_from((1, 32, 64, 256))))


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
    found = problem([(size, lower, lower + length) for size, lower, length in rows], alignment=1)
    packing = pack_problem(found, budget=QUICK)
    check(packing, {})
    assert packing.arena == min(all_heights(found.buffers, [{}]))[0]


def test_it_goes_past_declared_bounds_in_both_directions() -> None:
    rows: list[tuple[str | int, int, int]] = [("4096", 0, 2), ("64*n", 1, 4), ("4096", 3, 6), ("64*n", 5, 8)]
    packing = pack_problem(problem(rows, symbols={"n": {"min": 16, "max": 32}}), budget=QUICK)
    for n in (1, 15, 64, 100_000):
        check(packing, {"n": n})
    assert max(r.binding["n"] for r in packing.ratios) >= 4096
    assert packing.worst_ratio == 1


def test_no_more_is_asked_of_sizes_than_the_declared_minimum_gives() -> None:
    rows: list[tuple[str | int, int, int]] = [("64*n - 256", 0, 2), ("64", 1, 3)]
    packing = pack_problem(problem(rows, symbols={"n": {"min": 4}}), budget=QUICK)
    check(packing, {"n": 4})
    with pytest.raises(ProblemError, match=r"buffers\[0\] \(`b0`\).size: .* makes sense only where n >= 4"):
        pack_problem(problem(rows, symbols={"n": {"min": 3}}), budget=QUICK)
    with pytest.raises(ProblemError, match="makes sense only where n >= 2"):
        pack_problem(problem([("8 // (n - 1)", 0, 1)], symbols={"n": {}}), budget=QUICK)


# greedy packings are a third above the floor here, either for small n or for large
CROSSED: list[tuple[str | int, int, int]] = [
    ("128*n", 3, 5),
    ("64*n", 4, 7),
    ("64*n", 2, 4),
    ("64*n", 1, 3),
    ("4096", 0, 3),
    ("64*n", 0, 2),
]


def test_local_search_is_at_the_floor_there() -> None:
    found = problem(CROSSED, symbols={"n": {}})
    with patch.object(stack, "HEURISTICS", stack.HEURISTICS[:1]):
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
    found = problem([(4, 0, 3), (4, 3, 9), (4, 0, 9), (4, 9, 21), (4, 0, 21)], alignment=1)
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


def test_mixed_alignments_are_all_kept() -> None:
    found = problem_of(
        {
            "symbols": {"n": {}},
            "buffers": [
                {"id": "a", "size": "5*n", "lower": 0, "upper": 3, "alignment": 1},
                {"id": "b", "size": "7*n", "lower": 0, "upper": 3, "alignment": 16},
                {"id": "c", "size": "3", "lower": 1, "upper": 3, "alignment": 256},
            ],
        }
    )
    packing = pack_problem(found, budget=QUICK)
    for n in (1, 3, 100):
        check(packing, {"n": n})


def test_the_proof_comes_along_where_it_is_wanted() -> None:
    found = problem([("64*n", 0, 2), ("128", 1, 3)])
    files = pack_problem(found, budget=QUICK, certify=True).certificate
    assert files is not None and "index.json" in files
    assert any("apart" in name for name in files)
    assert pack_problem(found, budget=QUICK).certificate is None


def test_nothing_packs_into_nothing() -> None:
    packing = pack_problem(problem([]), budget=QUICK)
    assert (packing.arena, packing.offsets, packing.worst_ratio) == (0, {}, 1)
