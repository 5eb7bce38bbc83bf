"""The examples of every rule, linted as a user would: they are the rule's tests and its documentation.

A bad example marks the lines that the rule must point at with `# SYMnnn`, and no others.  One at stage
planned is found in what TVM prints after a pass, where nothing is marked: some finding is asked for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from symalloc.linter.diagnostic import Diagnostic, Report, Severity
from symalloc.linter.function_prover import LARGEST_EXTENT, LARGEST_INPUT
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import Linter
from symalloc.program.reading import ReadOptions
from symalloc.relax.workers.worker_pool import WorkerPool
from symalloc.rulebook.rule import BadExample, GoodExample, Rule, StageName, load_rules, read_rule

RULES = load_rules().rules


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_shipped_rules_pass_the_checks_of_rules(rule: Rule) -> None:
    """Linting takes them as they are."""
    assert read_rule(rule.file) == rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One example and the file it is written to."""

    rule: Rule
    example: BadExample | GoodExample
    file: str


def _cases(kind: str) -> list[Case]:
    return [
        Case(rule=rule, example=example, file=f"{rule.id}_{kind}_{index}.py")
        for rule in RULES
        for index, example in enumerate(getattr(rule, kind))
    ]


BAD, GOOD = _cases("bad"), _cases("good")
Findings = dict[str, list[Diagnostic]]


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory, kept_pool: WorkerPool) -> Findings:
    """The findings in each example, by its file name."""
    found: Findings = defaultdict(list)
    runs = dict.fromkeys(_options(case) for case in (*BAD, *GOOD))
    for stage, budget, order in runs:
        folder = tmp_path_factory.mktemp(stage)
        for case in (*BAD, *GOOD):
            if _options(case) == (stage, budget, order):
                (folder / case.file).write_text(case.example.module)
        for diagnostic in _linted(folder, kept_pool, stage=stage, budget=budget, order=order):
            found[Path(diagnostic.file).name].append(diagnostic)
    return found


def _options(case: Case) -> tuple[StageName, int | None, str]:
    return case.example.stage, case.example.budget, case.example.order


def _linted(folder: Path, pool: WorkerPool, **options: Any) -> Report:
    """Lint without trying fixes, which read everything once more."""
    linter = Linter(LintOptions(**options))
    readings = pool.read(sorted(folder.glob("*.py")), ReadOptions(stage=options["stage"]))
    return Report.joined([linter.lint(reading).report for reading in readings])


def _of_rule(found: Sequence[Diagnostic], rule: Rule) -> list[Diagnostic]:
    return [d for d in found if d.rule == rule.id]


def _marked(module: str, rule: str) -> set[int]:
    lines = enumerate(module.split("\n"), start=1)
    return {number for number, line in lines if re.search(rf"# {rule}\b", line)}


def _line(found: Diagnostic) -> int:
    return found.span.line if found.span else 0


def _name(case: Case) -> str:
    return f"{case.rule.id}: {case.example.name}"


@pytest.mark.parametrize("case", BAD, ids=_name)
def test_a_bad_example_is_found_as_expected_on_the_marked_lines(case: Case, findings: Findings) -> None:
    """And it has no error of another kind that is not marked."""
    every, module = findings[case.file], case.example.module
    found = _of_rule(every, case.rule)
    assert found, every
    if case.example.stage != "planned":
        lines, marked = {_line(d) for d in found}, _marked(module, case.rule.id)
        assert marked and lines == marked, every
    assert isinstance(case.example, BadExample)
    expect = case.example.expect
    for field in ("verdict", "severity", "counterexample", "precondition", "message"):
        wanted = getattr(expect, field)
        assert all(wanted is None or getattr(d, field) == wanted for d in found), (field, found)
    assert expect.counterexample is None or all(d.smallest for d in found)
    for one in every:
        if one.severity is Severity.ERROR and one.rule != case.rule.id:
            assert _line(one) in _marked(module, one.rule), one


@pytest.mark.parametrize("case", GOOD, ids=_name)
def test_a_good_example_is_clean(case: Case, findings: Findings) -> None:
    found = findings[case.file]
    assert not _of_rule(found, case.rule)
    assert not [d for d in found if d.severity is Severity.ERROR]


def test_the_limits_that_the_overflow_rule_names_are_those_it_has() -> None:
    doc = " ".join(load_rules().get("SYM105").doc.split())
    assert f"symbols of at most 2^{LARGEST_EXTENT.bit_length() - 1} and" in doc
    assert f"parameters of at most {LARGEST_INPUT >> 30} GiB" in doc
