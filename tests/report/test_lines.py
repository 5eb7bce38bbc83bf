"""The formats of one line a finding: concise and github."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from symalloc.report.formats import render_concise, render_github
from tests.report import samples

Golden = Callable[[str, str], None]


def test_concise(golden: Golden) -> None:
    golden("report.concise", render_concise(samples.report(*samples.ALL, samples.HOSTILE)))


def test_github(golden: Golden) -> None:
    golden("report.github", render_github(samples.report(*samples.ALL, samples.HOSTILE)))


def test_github_escapes_what_would_end_a_property() -> None:
    (line,) = render_github(samples.report(samples.HOSTILE)).splitlines()
    properties, _, message = line.removeprefix("::").partition("::")
    assert "file=dir with space/ü%2C%3A.py" in properties
    assert "%0A" in message and "%25" in message


def test_a_place_in_a_printed_script_is_no_line_of_the_file() -> None:
    for render in (render_concise, render_github):
        text = render(samples.report(samples.FROM_PASS))
        assert samples.PRINTED not in text
        assert ":10:" not in text and "line=10" not in text
        assert "found after StaticPlanBlockMemory" in text


def test_what_a_baseline_left_out_is_a_notice_without_a_place() -> None:
    known = replace(samples.report(), known=3, stale=1)
    assert render_github(known) == (
        "::notice title=symalloc baseline::3 known findings left out, 1 finding of the baseline gone\n"
    )
    assert render_github(samples.report()) == ""
