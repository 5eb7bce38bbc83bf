"""The examples show what the documentation says of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import symalloc
from symalloc.linter.diagnostic import Diagnostic

pytestmark = pytest.mark.usefixtures("warm_workers")

EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def _findings(name: str) -> tuple[Diagnostic, ...]:
    report = symalloc.lint([EXAMPLES / f"{n}.py" for n in ("issue_17322", "mlp", "branches", "step", "decode")])
    return tuple(d for d in report if name in d.file)


def test_the_issue_is_found_where_the_readme_says() -> None:
    (found,) = _findings("issue_17322")
    assert found.span is not None
    assert (found.rule, found.span.line, found.span.column) == ("SYM101", 18, 17)
    assert (found.counterexample, found.precondition) == ({"m": 5}, "m <= 4")
    assert found.fix is not None and found.fix.safe


@pytest.mark.parametrize("name", ["mlp", "step", "decode"])
def test_sound_models_have_no_findings(name: str) -> None:
    assert _findings(name) == ()


def test_the_branches_are_found_after_tvms_planner() -> None:
    (found,) = _findings("branches")
    assert (found.rule, found.stage) == ("SYM204", "StaticPlanBlockMemory")
