"""Every exhibit is found by the rule that fits, on the line or at the pass where the fault stands."""

from __future__ import annotations

import re
import signal
from functools import cache
from pathlib import Path

import pytest

import symalloc
from symalloc.linter.diagnostic import Diagnostic, Report
from tests.museum.exhibits import EXHIBITS, MODULES, Exhibit
from tests.museum.proofs import CRASHES, PROOFS
from tests.pool.processes import died
from tests.scale import part

pytestmark = pytest.mark.usefixtures("warm_workers")

ROOT = Path(__file__).parents[2]


@cache
def _reports() -> Report:
    return symalloc.lint([e.path for e in EXHIBITS])


def _findings(exhibit: Exhibit) -> list[Diagnostic]:
    found = [d for d in _reports() if d.file.endswith(exhibit.path.name) or exhibit.path.name in d.file]
    return [d for d in found if d.rule == exhibit.rule]


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda e: e.name)
def test_found_by_the_fitting_rule(exhibit: Exhibit) -> None:
    findings = _findings(exhibit)
    assert findings, f"{exhibit.rule} is silent; reported: {[(d.rule, d.message) for d in _reports()]}"
    assert {str(d.severity) for d in findings} == {exhibit.severity}
    first = findings[0]
    assert first.verdict is None or first.verdict == exhibit.verdict
    assert exhibit.stage is None or exhibit.stage == first.stage
    if exhibit.on_line is not None:
        lines = enumerate(exhibit.path.read_text().splitlines(), 1)
        wanted = {number for number, text in lines if exhibit.on_line in text}
        assert wanted & {d.span.line for d in findings if d.span is not None}
    if exhibit.counterexample is not None:
        assert (exhibit.counterexample, True) in [(d.counterexample, d.smallest) for d in findings]


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda e: e.name)
def test_module_says_what_it_is(exhibit: Exhibit) -> None:
    text = exhibit.path.read_text()
    said = text.split('"""')[1]
    assert text.startswith('"""') and exhibit.rule in said
    assert "#" not in exhibit.origin or exhibit.origin.rsplit("/", 1)[-1] in said


def test_every_module_is_an_exhibit() -> None:
    assert sorted(path.stem for path in MODULES.glob("*.py")) == sorted(e.name for e in EXHIBITS)


def test_the_list_of_bugs_is_made_of_the_exhibits(request: pytest.FixtureRequest) -> None:
    file = ROOT / "BUGS.md"
    text = file.read_text()
    listed = "".join(f"{exhibit.row}\n" for exhibit in EXHIBITS)
    made = re.sub(r"(?:^\| \[.*\n)+", lambda _: listed, text, count=1, flags=re.MULTILINE)
    if request.config.getoption("--update-golden"):
        file.write_text(made)
    assert made == file.read_text()
    assert f"runs {len(PROOFS) + len(CRASHES)} of the {len(EXHIBITS)} on" in text.replace("\n", " ")


@pytest.mark.slow
@pytest.mark.parametrize("name", part(PROOFS, 4))
def test_faults_are_real_when_the_modules_run(name: str) -> None:
    def prove() -> None:
        assert PROOFS[name]() is True

    status, said = died(prove)
    assert status == 0, said[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("name", CRASHES)
def test_branches_crash_when_the_modules_run(name: str) -> None:
    status, _ = died(CRASHES[name])
    assert status == -signal.SIGSEGV
