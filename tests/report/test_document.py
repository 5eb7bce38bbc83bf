"""Documents of findings: JSON, its schema, SARIF."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from symalloc.errors import UsageError
from symalloc.linter.diagnostic import Report
from symalloc.program.span import Source
from symalloc.report.document import KINDS, schema_text
from symalloc.report.formats import render_json, render_sarif
from symalloc.report.plan_json import read_plan
from symalloc.rulebook.rule import load_rules
from tests.report import samples

GOLDEN = Path(__file__).parent / "golden"
DOCUMENTS = {"lint": "report.json", "plan": "plan.json"}


@pytest.mark.parametrize("name", KINDS)
def test_a_schema_describes_each_part_and_allows_nothing_else(name: str) -> None:
    schema = json.loads(schema_text(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:symalloc:{name}:1"
    assert all("\n" not in part["description"] for part in schema["$defs"].values())
    records = [part for part in schema["$defs"].values() if part.get("type") == "object"]
    assert sum(part.get("additionalProperties") is False for part in records) >= len(records) // 2
    assert not jsonschema.Draft202012Validator(schema).is_valid({"other": 1})


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_fits_its_schema_with_all_its_fields_and_no_other(name: str) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema_text(name)))
    document = json.loads((GOLDEN / DOCUMENTS[name]).read_text())
    validator.validate(document)
    for where in (
        "version",
        "functions.0.arenas",
        "functions.0.arenas.0.bytes",
        "functions.1.kernels.0.calls",
        "functions.0.guards.0.check",
        "diagnostics.0.guarded",
        "summary.known",
    ):
        *path, field = where.split(".")
        inner: Any = document
        for step in path:
            inner = inner[int(step)] if step.isdigit() else inner.get(step, [{}] * 2)
        if field in inner:
            kept = inner.pop(field)
            assert not validator.is_valid(document), where
            inner[field] = kept
            inner["colour"] = "red"
            assert not validator.is_valid(document), where
            del inner["colour"]
    validator.validate(document)


@pytest.mark.parametrize("field", ["variable", "operator", "name", "offset"])
def test_a_plan_is_read_by_the_types_of_its_fields(field: str) -> None:
    document = json.loads((GOLDEN / "plan.json").read_text())
    document["functions"].pop()
    assert len(read_plan("plan.json", json.dumps(document))) == 1
    tensor = next(t for f in document["functions"] for arena in f["arenas"] for t in arena["buffers"])
    tensor[field] = ["a", "list"]
    with pytest.raises(UsageError, match=rf"not understood: .* at `\$.functions\[0\].*\.{field}`"):
        read_plan("plan.json", json.dumps(document))


SCHEMA = json.loads((Path(__file__).parent / "data" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
RULES = load_rules().rules


def _results(report: Report, root: Path | None = None) -> list[dict]:
    return json.loads(render_sarif(report, rules=RULES, root=root))["runs"][0]["results"]


def test_output_fits_the_official_schema() -> None:
    document = json.loads(render_sarif(samples.report(*samples.ALL, samples.HOSTILE), rules=RULES))
    jsonschema.Draft4Validator(SCHEMA).validate(document)


def test_every_rule_has_help() -> None:
    run = json.loads(render_sarif(samples.report(samples.PLAIN), rules=RULES))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(rule.id for rule in RULES)
    assert all(rule["help"]["text"] and rule["shortDescription"]["text"] for rule in rules)
    result = run["results"][0]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"]


def test_paths_below_the_root_are_relative_and_others_absolute(tmp_path: Path) -> None:
    report = samples.report(samples.OUTGROWN)
    below, elsewhere = (
        _results(report, root=root)[0]["locations"][0]["physicalLocation"] for root in (None, tmp_path)
    )
    assert below["artifactLocation"] == {"uri": samples.FILE, "uriBaseId": "%SRCROOT%"}
    assert below["region"]["startLine"] == 10
    uri = elsewhere["artifactLocation"]["uri"]
    assert uri.startswith("file:///") and uri.endswith(samples.FILE)


def test_the_places_that_need_a_bound_are_related_locations() -> None:
    (result,) = _results(samples.report(samples.BOUND))
    places = [place for place in result["relatedLocations"] if "SYM" in place["message"]["text"]]
    assert [place["message"]["text"] for place in places] == ["SYM101: m <= 4", "SYM201"]
    assert [place["physicalLocation"]["region"]["startLine"] for place in places] == [10, 11]


def test_fixes_are_replacements() -> None:
    (result,) = _results(samples.report(samples.OUTGROWN))
    grown, guard = result["fixes"]
    (change,) = grown["artifactChanges"]
    assert change["replacements"][0]["insertedContent"]["text"] == "R.shape([m * 4])"
    region = guard["artifactChanges"][0]["replacements"][0]["deletedRegion"]
    assert (region["startLine"], region["startColumn"]) == (region["endLine"], region["endColumn"]) == (10, 1)


def test_fingerprints_survive_moved_lines() -> None:
    report = samples.report(samples.OUTGROWN)
    lower = samples.OUTGROWN.span._replace(line=13, end_line=13)
    moved = Report(
        diagnostics=(replace(samples.OUTGROWN, span=lower),),
        summary=report.summary,
        sources={samples.FILE: Source(file=samples.FILE, text="\n\n\n" + samples.TEXT)},
    )
    (old,), (new,) = _results(report), _results(moved)
    assert old["partialFingerprints"] == new["partialFingerprints"]
    assert old["locations"] != new["locations"]


def test_what_a_baseline_left_out_is_counted() -> None:
    report = replace(samples.report(), known=3, stale=1)
    summary = json.loads(render_json(report))["summary"]
    assert (summary["known"], summary["stale"]) == (3, 1)
    document = json.loads(render_sarif(report, rules=RULES))
    assert document["runs"][0]["properties"] == {"knownFindings": 3, "staleFindings": 1}
    jsonschema.Draft4Validator(SCHEMA).validate(document)
