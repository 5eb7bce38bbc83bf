from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import jsonschema

from symalloc.report.document import schema_text
from symalloc.report.formats import render_json
from tests.report import samples

Golden = Callable[[str, str], None]
DIAGNOSTIC_KEYS = [
    *("rule", "name", "severity", "verdict", "message", "function", "file", "line", "column", "end_line"),
    *(
        "end_column",
        "path",
        "counterexample",
        "smallest",
        "precondition",
        "reason",
        "guarded",
        "places",
        "fix",
    ),
]
SUMMARY_KEYS = [
    *("functions", "constraints", "always_valid", "always_invalid", "runtime_check", "guarded", "unknown"),
    "data_dependent",
    "known",
    "stale",
    *("by_solver", "seconds"),
]


def test_golden(golden: Golden) -> None:
    golden("report.json", render_json(samples.report(*samples.ALL)))


def test_output_fits_the_schema() -> None:
    schema = json.loads(schema_text("lint"))
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(render_json(samples.report(*samples.ALL, samples.HOSTILE)))
    jsonschema.Draft202012Validator(schema).validate(document)


def test_the_schema_refuses_what_is_missing_or_unknown() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema_text("lint")))
    document = json.loads(render_json(samples.report(samples.OUTGROWN)))
    del document["diagnostics"][0]["guarded"]
    assert not validator.is_valid(document)
    document = json.loads(render_json(samples.report(samples.OUTGROWN)))
    document["diagnostics"][0]["colour"] = "red"
    assert not validator.is_valid(document)


def test_keys_are_those_of_the_format() -> None:
    document = json.loads(render_json(samples.report(samples.OUTGROWN)))
    assert list(document) == ["version", "files", "diagnostics", "summary"]
    assert list(document["diagnostics"][0]) == DIAGNOSTIC_KEYS
    assert list(document["summary"]) == SUMMARY_KEYS


def test_a_place_in_a_printed_script_has_no_line() -> None:
    (row,) = json.loads(render_json(samples.report(samples.FROM_PASS)))["diagnostics"]
    assert row["line"] is None
    assert row["file"] == samples.FILE
    assert "StaticPlanBlockMemory" in row["message"]


def test_safe_fixes_come_first() -> None:
    (row,) = json.loads(render_json(samples.report(samples.OUTGROWN)))["diagnostics"]
    assert row["fix"] == {"title": samples.GROWN.title, "safe": True}


def test_what_a_baseline_left_out_is_counted() -> None:
    summary = json.loads(render_json(replace(samples.report(), known=3, stale=1)))["summary"]
    assert (summary["known"], summary["stale"]) == (3, 1)
