"""Answers of `symalloc pack` as text, JSON and CSV."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from symalloc.planner.packing.packing_problem import (
    Packing,
    PackingProblem,
    pack_problem,
    problem_of,
    read_csv,
)
from symalloc.planner.stack import SearchBudget
from symalloc.report.document import schema_text
from symalloc.report.pack_text import overrun_text, packing_as_csv, packings_as_json, packings_as_text

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
    assert list(document) == [
        "arena",
        "offsets",
        "ratios",
        "worst_ratio",
        "mean_ratio",
        "proved",
        "seconds",
    ]
    assert document["arena"] == "64*n + 128"
    assert sorted(document["offsets"].items()) in (
        [("x", "0"), ("y", "64*n")],
        [("x", "128"), ("y", "0")],
    )
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
