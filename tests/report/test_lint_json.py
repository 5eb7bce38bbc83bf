from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from symalloc.report.formats import render_json
from tests.report import samples

Golden = Callable[[str, str], None]


def test_golden(golden: Golden) -> None:
    golden("report.json", render_json(samples.report(*samples.ALL)))


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
