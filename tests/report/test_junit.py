"""The report as JUnit XML."""

from __future__ import annotations

from dataclasses import replace
from xml.etree.ElementTree import fromstring

from symalloc.linter.diagnostic import Severity
from symalloc.report.formats import render_junit
from tests.report import samples


def test_a_case_for_each_finding() -> None:
    found = samples.report(*samples.ALL, samples.HOSTILE)
    root = fromstring(render_junit(found))
    cases = root.findall("testsuite/testcase")
    failing = [d for d in found if d.severity is not Severity.NOTE]
    broken = root.findall(".//failure") + root.findall(".//error")
    assert root.get("tests") == str(len(cases)) and len(cases) >= len(found)
    assert len(broken) == len(failing) == int(root.get("failures", 0)) + int(root.get("errors", 0))
    assert sum(int(suite.get("tests", 0)) for suite in root) == len(cases)
    grown = next(one for one in broken if "4*m B at offset 0" in (one.get("message") or ""))
    assert grown.text is not None and "counterexample: m = 5" in grown.text


def test_a_place_in_a_printed_script_is_no_line_of_the_file() -> None:
    (case,) = fromstring(render_junit(samples.report(samples.FROM_PASS))).findall(
        "testsuite/testcase[failure]"
    )
    assert case.get("line") is None and ":10:" not in (case.get("name") or "")


def test_a_file_without_findings_is_a_case_that_passes() -> None:
    report = samples.report()
    cases = fromstring(render_junit(report)).findall("testsuite/testcase")
    assert [case.get("classname") for case in cases] == list(report.files)
    assert not any(len(case) for case in cases)


def test_what_a_baseline_left_out_is_counted_in_a_suite_of_its_own() -> None:
    root = fromstring(render_junit(replace(samples.report(), known=3, stale=1)))
    found = root.findall("testsuite[@name='baseline']/properties/property")
    assert [(one.get("name"), one.get("value")) for one in found] == [("known", "3"), ("stale", "1")]
    without = fromstring(render_junit(samples.report()))
    assert root.get("tests") == without.get("tests")
    assert without.find("testsuite[@name='baseline']") is None
