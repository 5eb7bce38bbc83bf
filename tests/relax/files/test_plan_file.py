"""The report of a file's plan tells what a call holds that falls back."""

from __future__ import annotations

from pathlib import Path

import pytest

from symalloc.planner.planner_options import GuardKind, PlanOptions
from symalloc.relax.files.plan_file import plan_file
from symalloc.relax.files.requests import PlanRequest

ATTENTION = Path(__file__).parents[3] / "examples" / "attention.py"


@pytest.mark.parametrize("guards", ["fallback", "assert"])
def test_what_a_fallback_holds_counts_where_a_guard_refuses_and_nowhere_else(guards: GuardKind) -> None:
    """Constants for 512 rows are held at each n up to there, and beyond it what the unplanned call needs."""
    found = plan_file(
        PlanRequest(path=ATTENTION),
        options=PlanOptions(bounds="reserve", guards=guards),
        form=None,
        samples=({"n": 1}, {"n": 512}, {"n": 600}),
        comparison=None,
    )
    (report,) = found.reports
    few, bound, beyond = report.samples
    assert few.call is not None and few.call_unplanned is not None and few.call > 1000 * few.call_unplanned
    assert bound.call == bound.call_unplanned and bound.call is not None and few.call <= bound.call
    assert beyond.refused and beyond.falls_back is (guards == "fallback")
    assert (beyond.call == beyond.call_unplanned) is beyond.falls_back
    assert not any(s.refused or s.falls_back for s in (few, bound))
