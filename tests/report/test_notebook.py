"""Short representations, and HTML for notebooks: small, self-contained, and names stay names."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import symalloc
from symalloc.linter.diagnostic import Diagnostic, LintSummary, Report, Severity
from symalloc.report.notebook import plans_html
from symalloc.report.text import render_text
from tests.pool.library import need_native
from tests.report import plan_samples

HOSTILE = "</table><script>alert(1)</script>"


def _tags(html: str) -> set[str]:
    """The tags of a piece of HTML, which is well-formed but for its images."""
    closed = re.sub(r"<img ([^>]*)>", r"<img \1/>", html)
    return {element.tag for element in ElementTree.fromstring(f"<all>{closed}</all>").iter()}


def _report() -> Report:
    found = Diagnostic(
        rule="SYM101",
        name="overflow",
        severity=Severity.ERROR,
        verdict=None,
        message=HOSTILE,
        function="main",
        counterexample={"n": 5},
    )
    return Report(diagnostics=(found,), summary=LintSummary(functions=2))


def test_a_plan_shows_its_arenas_and_its_map() -> None:
    plan = plan_samples.everything().plan
    assert repr(plan) == "<Plan of main: 5 tensors in 3 arenas, 2 unplanned>"
    html = replace(plan, representative={"n": 16, "k": 2})._repr_html_()
    assert _tags(html) == {"all", "div", "table", "thead", "tbody", "tr", "th", "td", "img"}
    assert f"{plan.arenas[0].size} B" in html
    image = re.search(r"data:image/svg\+xml;base64,([^\"]+)", html)
    assert image is not None
    text = b64decode(image[1]).decode()
    placed = [p.buffer for arena in plan.arenas for p in arena.placements]
    assert all(buffer.name in text for buffer in placed)
    assert len(html) < 20_000


def test_names_in_a_plan_stay_names() -> None:
    plan = replace(plan_samples.small().plan, function=HOSTILE, representative={"n": 16})
    assert _tags(plan._repr_html_()) <= {"all", "div", "table", "thead", "tbody", "tr", "th", "td", "img"}


def test_a_planned_module_shows_its_first_plans() -> None:
    plan = replace(plan_samples.small().plan, representative={"n": 16})
    html = plans_html(tuple(replace(plan, function=f"f{i}") for i in range(6)))
    assert html.count("<img") == 4
    assert "and 2 more" in html


def test_a_report_is_printed_as_text() -> None:
    report = _report()
    assert repr(report) == "<Report: 1 error in 2 functions>"
    assert str(report) == render_text(report).rstrip("\n")
    assert _tags(report._repr_html_()) == {"all", "div", "table", "thead", "tbody", "tr", "th", "td"}
    assert "n = 5" in report._repr_html_()
    empty = Report(diagnostics=(), summary=LintSummary(functions=1))
    assert repr(empty) == "<Report: nothing found in 1 function>"


@pytest.fixture
def pool() -> Iterator[symalloc.Pool]:
    need_native()
    with symalloc.Pool(limit=2**20) as found:
        yield found


def test_a_pool_shows_who_holds_it(pool: symalloc.Pool) -> None:
    assert repr(pool) == "<Pool: 0 B live, 0 B reserved, limit 1048576 B>"
    block = pool.alloc(1000, tag=HOSTILE)
    assert "1000 B live" in repr(pool)
    html = pool._repr_html_()
    assert _tags(html) == {"all", "div", "table", "thead", "tbody", "tr", "th", "td"}
    assert "1000 B" in html
    block.free()
