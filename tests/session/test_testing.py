"""The assertion for tests of other projects, which the pytest plugin brings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import symalloc
from symalloc.linter.baseline import Baseline
from tests.test_api import FAULTY, SOUND

ROOT = Path(__file__).parents[2]


def test_a_fault_fails_with_the_findings(assert_memory_safe: Callable[..., symalloc.Report]) -> None:
    with pytest.raises(AssertionError, match="memory faults:") as error:
        assert_memory_safe(FAULTY, select="SYM101")
    assert "counterexample: m = 5  ->  20 B > 16 B" in str(error.value)


def test_what_is_safe_gives_its_report(assert_memory_safe: Callable[..., symalloc.Report]) -> None:
    assert assert_memory_safe(SOUND).ok
    assert assert_memory_safe(FAULTY, select="SYM101", assume="m <= 4").summary.constraints == 1
    assert assert_memory_safe is symalloc.assert_memory_safe


def test_known_findings_are_left_out(
    assert_memory_safe: Callable[..., symalloc.Report], tmp_path: Path
) -> None:
    model, known = tmp_path / "model.py", tmp_path / "known.json"
    model.write_text((ROOT / "examples" / "issue_17322.py").read_text())
    known.write_text(Baseline.of(symalloc.lint(model), known).text())
    report = assert_memory_safe(model, baseline=known)
    assert (len(report), report.known, report.stale) == (0, 1, 0)
    with pytest.raises(AssertionError, match="memory faults:"):
        assert_memory_safe(model)
