"""The examples have the faults of which the documentation tells, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

import symalloc

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.usefixtures("warm_workers")
def test_the_faults_are_those_that_are_told() -> None:
    names = ("issue_17322", "mlp", "branches", "step", "decode")
    report = symalloc.lint([EXAMPLES / f"{name}.py" for name in names])
    faults = {Path(found.file).stem: (found.rule, found.stage) for found in report}
    assert faults == {"issue_17322": ("SYM101", None), "branches": ("SYM204", "StaticPlanBlockMemory")}
    assert len(report) == len(faults)
