"""Short representations, and the same text in notebooks as is printed: names in it stay names."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace as changed

import symalloc
from symalloc.linter.diagnostic import LintSummary, Report
from symalloc.planner.memory_report.deployment import Deployment, ModuleReport
from symalloc.planner.memory_report.function_report import FunctionReport
from symalloc.report.plan_diff import compare_plans
from symalloc.report.plan_json import plans_as_json, read_plan
from symalloc.report.plan_text import plans_as_text
from symalloc.report.quantities import binding_text, human_bytes
from symalloc.report.text import render_text
from tests.report import plan_samples
from tests.report.map.test_page import HOSTILE, finding


def _tags(html: str) -> set[str]:
    """The tags of a piece of HTML, which is well-formed."""
    return {element.tag for element in ElementTree.fromstring(f"<all>{html}</all>").iter()}


def test_a_plan_shows_its_arenas() -> None:
    plan = plan_samples.everything().plan
    assert repr(plan) == "<Plan of main: 5 tensors in 3 arenas, 2 unplanned>"
    html = plan._repr_html_()
    assert _tags(html) == {"all", "pre"}
    assert f"{plan.arenas[0].size} B" in html
    assert str(plan).startswith(f"{plan!r}\n  arena 1 on device 0")
    assert _tags(replace(plan, function=HOSTILE)._repr_html_()) == {"all", "pre"}


def _module(*reports: FunctionReport) -> ModuleReport:
    functions = {r.plan.function: replace(plan_samples.function(), name=r.plan.function) for r in reports}
    return ModuleReport(reports=reports, deployment=Deployment(functions=()), functions=functions)


@pytest.mark.parametrize("name", plan_samples.SAMPLES)
def test_a_module_prints_its_report_and_its_samples_at_any_sizes(name: str) -> None:
    report = plan_samples.SAMPLES[name]()
    module = _module(report)
    assert str(module) == plans_as_text([report]).rstrip("\n")
    assert _tags(module._repr_html_()) == {"all", "pre"}
    for sample in report.samples:
        found = module.at(sample.binding)
        assert changed(found, label=sample.label) == sample
        assert human_bytes(found.call) in str(found) or found.refused or found.call is None


def test_what_a_plan_gains_is_one_sentence() -> None:
    sample = plan_samples.small().samples[0]
    told = {"binding": {"n": 2, "B": 3}, "call": 1024, "call_unplanned": 4096, "call_unbounded": 2048}
    both = "At n = 2, B = 3 a call holds at most 1.0 KiB; "
    both += "without a plan 4.0 KiB (75.0 % saved); with TVM's plan "
    assert str(changed(sample, **told)) == f"{both}2.0 KiB (50.0 % saved)."
    assert str(changed(sample, **told, call_bounded=512)) == f"{both}512 B (100.0 % more with ours)."
    assert str(changed(sample, **told, call_bounded=512, label="beyond")) == f"{both}2.0 KiB (50.0 % saved)."
    assert str(changed(sample, **told, call_bounded=1024)) == f"{both}1.0 KiB (the same)."
    assert str(changed(sample, binding={}, call=0, call_unplanned=0)) == (
        "A call holds at most 0 B; without a plan 0 B (the same)."
    )
    unknown = changed(sample, binding={}, call=None, known_call=64)
    assert str(unknown) == "A call holds at least 64 B, and not all of it is known."
    assert str(changed(sample, **told, refused=True)) == "At n = 2, B = 3 a call is refused."
    assert str(changed(sample, **told, refused=True, falls_back=True)).startswith(both)


def test_a_comparison_and_a_proof_show_themselves() -> None:
    records = read_plan("plan", plans_as_json([plan_samples.small()]))
    others = read_plan("plan", plans_as_json([plan_samples.everything()]))
    html = compare_plans(records, [*others, changed(others[0], function=HOSTILE)])._repr_html_()
    assert _tags(html) == {"all", "pre"}
    assert "whole call" in html
    for claim in ("4*m <= 16", "n >= 0", "n < 0", "n*n*m != 7*k*k*k + 11"):
        proof = symalloc.prove(claim)
        shown = proof._repr_html_()
        assert _tags(shown) == {"all", "pre"}
        assert shown.startswith(f"<pre>{proof.verdict.value}\n")
        if proof.counterexample:
            assert binding_text(proof.counterexample) in shown


def test_a_report_is_printed_as_text() -> None:
    report = Report(diagnostics=(finding("main", "x"),), summary=LintSummary(functions=2))
    assert repr(report) == "<Report: 1 error in 2 functions>"
    assert str(report) == render_text(report).rstrip("\n")
    assert _tags(report._repr_html_()) == {"all", "pre"}
    assert "n = 5" in report._repr_html_()
    empty = Report(diagnostics=(), summary=LintSummary(functions=1))
    assert repr(empty) == "<Report: nothing found in 1 function>"


def test_a_pool_shows_who_holds_it() -> None:
    with symalloc.Pool(limit=2**20) as pool:
        assert repr(pool) == "<Pool: 0 B live, 0 B reserved, limit 1048576 B>"
        block = pool.alloc(1000, tag=HOSTILE)
        assert "1000 B live" in repr(pool)
        html = pool._repr_html_()
        assert _tags(html) == {"all", "pre"}
        assert "1000 B" in html
        block.free()
