"""Texts: findings with their excerpts, plans, packings, replays, targets; wrapped lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from rich.cells import cell_len

from symalloc.linter.diagnostic import CANNOT_BE_READ, LintSummary, Report
from symalloc.planner.memory_report.function_report import FunctionReport, TargetReport
from symalloc.planner.packing.packing_problem import (
    Packing,
    PackingProblem,
    pack_problem,
    problem_of,
    read_csv,
)
from symalloc.planner.stack import SearchBudget
from symalloc.pool.trace import Replayed
from symalloc.program.span import Source, Span, split_lines
from symalloc.report.document import schema_text
from symalloc.report.formats import render_concise, render_github, render_json
from symalloc.report.pack_text import overrun_text, packing_as_csv, packings_as_json, packings_as_text
from symalloc.report.plan_json import plans_as_json
from symalloc.report.plan_text import plans_as_text, target_lines
from symalloc.report.pool_use import replays_as_json, replays_as_text
from symalloc.report.text import CellLine, Underline, Window, excerpt, render_summary, render_text
from tests.report import plan_samples, samples
from tests.scale import tries

UNREADABLE = replace(samples.PLAIN, rule=CANNOT_BE_READ)
NOTHING = LintSummary()


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (
            replace(samples.report(UNREADABLE, UNREADABLE), summary=NOTHING),
            "nothing verified: 1 file could not be read.",
        ),
        (
            replace(samples.report(UNREADABLE, replace(UNREADABLE, file="b.py")), summary=NOTHING, skipped=1),
            "nothing verified: 2 files could not be read. 1 file without Relax modules skipped",
        ),
        (
            replace(samples.report(UNREADABLE), summary=LintSummary(functions=1), skipped=3),
            "0 constraints: 0 always valid, 0 always invalid, 0 run-time checks (0 guarded), 0 unknown. "
            "1 file could not be read in full, 3 files without Relax modules skipped",
        ),
        (
            replace(samples.report(samples.OUTGROWN), summary=LintSummary(runtime_check=1)),
            "1 constraint: 0 always valid, 0 always invalid, 1 run-time check (0 guarded), 0 unknown. "
            "1 fixable with --fix",
        ),
    ],
)
def test_the_last_line_counts_and_says_what_was_not_verified(report: Report, text: str) -> None:
    assert render_summary(report) == text


def test_a_declared_bound_is_one_line() -> None:
    lines = render_text(samples.report(samples.BOUND), quiet=True).splitlines()
    assert lines == [f"warning[SYM401]: {samples.BOUND.message} --> {samples.FILE}:10:17", ""]


def in_source(text: str, end_column: int) -> Report:
    """A report of one finding, on the first line of a source."""
    place = Span(file=samples.FILE, line=1, column=5, end_line=1, end_column=end_column)
    source = Source(file=samples.FILE, text=text)
    return replace(samples.report(replace(samples.PLAIN, span=place)), sources={samples.FILE: source})


def test_no_terminal_escape_gets_through() -> None:
    for report, shown in (
        (samples.report(samples.HOSTILE), "\\x1b[31mred"),
        (in_source("x = 1  # \x1b[31m \u202e \x07\n", 6), "x = 1  # \\x1b[31m \\u202e \\x07"),
    ):
        text = render_text(report)
        assert shown in text
        assert not {"\x1b", "\x07", "\u202e"} & set(text)


def test_endless_lines_are_cut_without_a_terminal_too() -> None:
    text = render_text(in_source(f"x = {'1' * 100_000}\n", 100_005))
    assert max(map(len, text.split("\n"))) <= 240


def test_summary_names_unsafe_fixes() -> None:
    unsafe = replace(samples.PLAIN, fixes=(samples.GUARD,))
    assert render_summary(samples.report(unsafe)).endswith("1 with --fix --unsafe-fixes")
    both = samples.report(samples.OUTGROWN, unsafe)
    assert render_summary(both).endswith("1 fixable with --fix, 1 more with --fix --unsafe-fixes")


def test_a_call_that_holds_more_than_without_a_plan_is_told() -> None:
    report = plan_samples.small()
    same = structs.replace(report.samples[-1], call=200, call_unplanned=200, refused=False)
    assert "times what it holds without a plan" not in plans_as_text([replace(report, samples=(same,))])
    above = structs.replace(same, call=300)
    refused = structs.replace(above, call=900, refused=True)
    text = plans_as_text([replace(report, samples=(above, refused))])
    at = ", ".join(f"{name} = {value}" for name, value in above.binding.items())
    assert f"a call holds up to 1.500 times what it holds without a plan, at {at}\n" in text


ALPHABET = "ab ()\té漢\u0301\x1b"
TEXTS = st.lists(st.text(ALPHABET, max_size=120), min_size=1, max_size=9).map("\n".join)


@st.composite
def _marks(draw: st.DrawFn) -> Underline:
    line, column = draw(st.integers(1, 9)), draw(st.integers(1, 130))
    end_line = draw(st.integers(line, 10))
    end_column = draw(st.integers(column if end_line == line else 1, 140))
    span = Span(file="f", line=line, column=column, end_line=end_line, end_column=end_column)
    return Underline(
        span=span,
        text=draw(st.sampled_from(["", "label", "漢字"])),
        style="",
        glyph=draw(st.sampled_from("^-")),
    )


@settings(max_examples=tries(150, 3000))
@given(TEXTS, st.lists(_marks(), max_size=4), st.sampled_from([None, 20, 40, 80]))
def test_any_marks_in_any_text(text: str, marks: list[Underline], width: int | None) -> None:
    rows = excerpt(text, marks, width)
    count = len(split_lines(text))
    inside = [m for m in marks if m.span.end_line <= count]
    numbers = [row.number for row in rows if row.number]
    assert numbers == sorted(set(numbers))
    assert {m.span.line for m in inside} <= set(numbers)
    assert bool(rows) == bool(inside)
    for row in rows:
        assert not {"\n", "\t", "\x1b"} & set(row.text.plain)
        if width is not None and row.number:
            assert cell_len(row.text.plain) <= width
    labels = sorted(m.text for m in inside if m.text)
    shown = " ".join(row.text.plain for row in rows if not row.number)
    assert all(shown.count(label) >= labels.count(label) for label in labels)


def test_a_wide_character_is_not_split() -> None:
    line = CellLine("漢字漢字")
    assert line.cut(Window(left=0, right=5)) == "漢字…"
    assert line.cut(Window(left=2, right=8)) == "… 漢字"
    assert line.cell(3) == 4


def test_what_a_baseline_left_out_is_a_notice_without_a_place() -> None:
    known = replace(samples.report(), known=3, stale=1)
    assert render_github(known) == (
        "::notice title=symalloc baseline::3 known findings left out, 1 finding of the baseline gone\n"
    )
    assert render_github(samples.report()) == ""


SYMBOLIC = problem_of(
    {
        "name": "p",
        "symbols": {"n": {"min": 1, "max": 8}},
        "buffers": [
            {"id": "x", "size": "64*n", "lower": 0, "upper": 2, "alignment": 64},
            {"id": "y", "size": "128", "lower": 1, "upper": 3, "alignment": 64},
        ],
    }
)
TABLE = read_csv("lower,id,upper,size\n0,x,2,4\n1,y,3,8\n2,z,4,4\n", "t")


def packed(problem: PackingProblem, capacity: int | None = None) -> Packing:
    return pack_problem(problem, budget=SearchBudget.of("quick"), capacity=capacity)


def test_the_table_has_a_row_for_each_problem() -> None:
    heading, first, second = packings_as_text([packed(SYMBOLIC), packed(TABLE)]).splitlines()
    assert heading.split() == ["problem", "buffers", "worst", "mean", "proved", "seconds", "arena", "(bytes)"]
    cells = first.split()
    assert cells[:5] == ["p", "2", "1.0000", "1.0000", "yes"]
    assert first.endswith("  64*n + 128")
    assert second.split()[0] == "t" and second.split()[-1] == "12"


def test_json_has_what_the_design_says() -> None:
    document = json.loads(packings_as_json([packed(SYMBOLIC)]))
    assert " ".join(document) == "arena offsets ratios worst_ratio mean_ratio proved seconds"
    assert document["arena"] == "64*n + 128"
    assert document["offsets"] in ({"x": "0", "y": "64*n"}, {"x": "128", "y": "0"})
    row = next(r for r in document["ratios"] if r["binding"] == {"n": 4096})
    assert row == {"binding": {"n": 4096}, "bytes": 262272, "floor": 262272, "ratio": 1.0}
    assert (document["worst_ratio"], document["mean_ratio"], document["proved"]) == (1.0, 1.0, True)


def test_problems_and_answers_fit_their_schemas() -> None:
    problem, answer = map(validator, ("pack-problem", "pack"))
    problem.validate(json.loads(Path("examples/buffers.json").read_text()))
    assert not problem.is_valid({"buffers": [{"id": 1, "size": 1.5, "lower": 0, "upper": 1}]})
    for packings in ([packed(SYMBOLIC)], [packed(SYMBOLIC), packed(TABLE)]):
        answer.validate(json.loads(packings_as_json(packings)))
    assert not answer.is_valid({"arena": 12})


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads(schema_text(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_csv_is_the_input_and_a_column() -> None:
    header, *rows = (line.split(",") for line in packing_as_csv(packed(TABLE)).splitlines())
    assert header == ["lower", "id", "upper", "size", "offset"]
    assert [row[:4] for row in rows] == [["0", "x", "2", "4"], ["1", "y", "3", "8"], ["2", "z", "4", "4"]]
    offset = {row[1]: int(row[4]) for row in rows}
    assert {offset["x"], offset["z"]} in ({0}, {8}) and offset["y"] in (0, 4)


def test_csv_of_a_problem_from_json_has_the_columns_of_minimalloc() -> None:
    static = problem_of({"buffers": [{"id": 3, "size": 64, "lower": 0, "upper": 2, "alignment": 32}]})
    assert packing_as_csv(packed(static)) == "id,lower,upper,size,alignment,offset\n3,0,2,64,32,0\n"


def test_an_overrun_says_where_and_how_much() -> None:
    said = overrun_text(packed(SYMBOLIC, capacity=600), 600)
    assert said == "p: does not fit the capacity of 600 bytes: needs 640 bytes at n = 8"
    assert overrun_text(packed(TABLE, capacity=11), 11).endswith("bytes: needs 12 bytes")


MIB = 2**20


def _result(trace: str, policy: str, reserved: int, *, failed: str | None = None) -> Replayed:
    paged = policy == "pool"
    return Replayed(
        trace=trace,
        policy=policy,
        operations=1000,
        peak_live=100 * MIB,
        peak_reserved=reserved,
        seconds=0.5,
        commits=7 * paged,
        decommits=3 * paged,
        bytes_given_back=2 * MIB * paged,
        out_of_memory=failed,
        ratio=reserved / (100 * MIB),
        operations_per_second=2000,
    )


RESULTS = [
    _result("a", "pool", 105 * MIB),
    _result("a", "exact-size", 200 * MIB),
    _result("b", "pool", 120 * MIB, failed="event 9: no room"),
    _result("b", "exact-size", 450 * MIB),
]


def plan_text(make: Callable[[], FunctionReport]) -> str:
    return plans_as_text([make()])


EVERYTHING = samples.report(*samples.ALL, samples.HOSTILE)
GOLDEN: dict[str, Callable[[], str]] = {
    "report.txt": lambda: render_text(samples.report(*samples.ALL)),
    "report-80.txt": lambda: render_text(samples.report(*samples.ALL), width=80),
    "report-colour.txt": lambda: render_text(samples.report(samples.OUTGROWN, samples.WIDE), colour=True),
    "report.concise": lambda: render_concise(EVERYTHING),
    "report.github": lambda: render_github(EVERYTHING),
    "report.json": lambda: render_json(samples.report(*samples.ALL)),
    "plan.json": lambda: plans_as_json([plan_samples.small(), plan_samples.everything()]),
    "pool.txt": lambda: replays_as_text(RESULTS),
    **{f"plan-{name}.txt": partial(plan_text, make) for name, make in plan_samples.SAMPLES.items()},
}


@pytest.mark.parametrize("name", GOLDEN)
def test_texts_are_those_of_the_golden_files(name: str, golden: Callable[[str, str], None]) -> None:
    golden(name, GOLDEN[name]())


def test_a_single_trace_needs_no_summary() -> None:
    assert "mean" not in replays_as_text(RESULTS[:2])


def test_replay_as_json() -> None:
    document = json.loads(replays_as_json(RESULTS))
    assert document["version"] == 1
    assert [r["ratio"] for r in document["results"]] == [1.05, 2.0, 1.2, 4.5]
    assert document["results"][2]["out_of_memory"] == "event 9: no room"
    assert document["totals"][1] == {"policy": "exact-size", "geometric_mean": 3.0, "worst": 4.5}


OPENCL = TargetReport(
    name="opencl",
    present=False,
    generated=True,
    flavour="arena",
    shared=True,
    kernels=5,
    offset_kernels=3,
    grounded=2,
    kept=4096,
)


STORAGES = "target opencl: tensors share whole storages"
GROUNDED = "starts a storage, as more than kernels looks there and data is a mere handle"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {},
            [
                "target opencl: 3 of 5 kernels take a tensor at an offset",
                "2 tensors start a storage each, as more than kernels looks there",
                "planned and linted; not run: this machine has no such device",
                "TVM's allocator on opencl keeps a block for each size that an arena ever had: 4.0 KiB after",
            ],
        ),
        ({"grounded": 1}, ["target opencl", f"1 tensor {GROUNDED}"]),
        ({"flavour": "storages"}, [STORAGES]),
        ({"flavour": "storages", "shared": False}, [f"{STORAGES}, as no kernel can read and write"]),
        ({"grounded": 0, "present": True}, ["target", "planned and linted; `symalloc run` runs on"]),
        ({"grounded": 0, "generated": False}, ["target", "this build of TVM generates no code for opencl: "]),
    ],
)
def test_what_is_said(changed: dict[str, Any], said: list[str]) -> None:
    target = structs.replace(OPENCL, **changed)
    lines = [line.strip() for line in target_lines(target)]
    for line, words in zip(lines, said, strict=False):
        assert line.startswith(words)
    assert lines[0] in plans_as_text([replace(plan_samples.small(), target=target)])
