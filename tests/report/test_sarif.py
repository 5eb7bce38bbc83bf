from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema

from symalloc.linter.diagnostic import Report
from symalloc.program.span import Source
from symalloc.report.formats import render_sarif
from symalloc.rulebook.book import load_rules
from tests.report import samples

SCHEMA = Path(__file__).parent / "data" / "sarif-schema-2.1.0.json"
RULES = load_rules().rules


def _results(report: Report, root: Path | None = None) -> list[dict]:
    return json.loads(render_sarif(report, rules=RULES, root=root))["runs"][0]["results"]


def test_output_fits_the_official_schema() -> None:
    document = json.loads(render_sarif(samples.report(*samples.ALL, samples.HOSTILE), rules=RULES))
    jsonschema.Draft4Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(document)


def test_every_rule_has_help() -> None:
    run = json.loads(render_sarif(samples.report(samples.PLAIN), rules=RULES))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(rule.id for rule in RULES)
    assert all(rule["help"]["text"] and rule["shortDescription"]["text"] for rule in rules)
    result = run["results"][0]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"]


def test_paths_below_the_root_are_relative() -> None:
    (result,) = _results(samples.report(samples.OUTGROWN))
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": samples.FILE, "uriBaseId": "%SRCROOT%"}
    assert place["region"]["startLine"] == 10


def test_paths_elsewhere_are_absolute(tmp_path: Path) -> None:
    (result,) = _results(samples.report(samples.OUTGROWN), root=tmp_path)
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
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
    document = json.loads(render_sarif(replace(samples.report(), known=3, stale=1), rules=RULES))
    assert document["runs"][0]["properties"] == {"knownFindings": 3, "staleFindings": 1}
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
