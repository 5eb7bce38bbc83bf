"""Plans of files: what is written, and when nothing is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from symalloc.errors import UsageError
from symalloc.planner.planner_options import PlanOptions
from symalloc.relax.files.requests import PlanRequest
from symalloc.relax.read.open_model import load_module
from symalloc.relax.workers.child import call_in_child
from symalloc.session import planning
from symalloc.session.planning import planned_file
from tests.modules import CHAIN


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlanRequest:
    monkeypatch.chdir(tmp_path)
    Path("module.py").write_text(CHAIN)
    return PlanRequest(path=Path("module.py"))


def certified(request: PlanRequest) -> PlanRequest:
    return replace(request, plan=PlanOptions(certificate=Path("proofs")))


def names(folder: Path = Path()) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def test_nothing_is_written_before_it_is_asked_for(request_: PlanRequest) -> None:
    planned = planned_file(certified(request_))
    assert planned.report.ok
    assert names() == {"module.py"}


def test_certificates_come_whole_beside_what_is_there(request_: PlanRequest) -> None:
    Path("proofs").mkdir()
    Path("proofs/notes.txt").write_text("mine")
    planned = planned_file(certified(request_), form="json")
    planned.write(Path("planned.json"), Path("proofs"))
    assert load_module(Path("planned.json").read_bytes()).get_global_vars()
    written = names()
    assert {"planned.json", "proofs/index.json", "proofs/notes.txt"} <= written
    assert not [name for name in written if name.startswith(".")]
    listed = json.loads(Path("proofs/index.json").read_text())
    assert listed
    assert any(name.endswith(".smt2") for name in written)


def test_an_output_that_cannot_be_written_leaves_no_certificate(request_: PlanRequest) -> None:
    Path("planned.json").mkdir()
    before = names()
    planned = planned_file(certified(request_), form="json")
    with pytest.raises(UsageError, match=r"cannot write planned\.json"):
        planned.write(Path("planned.json"), Path("proofs"))
    assert names() == before


def test_a_planner_of_tvm_that_dies_is_no_fault_of_ours(
    request_: PlanRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashing(job: str, *arguments: Any, what: str, **named: Any) -> Any:
        if job == planning.COMPARE_JOB:
            return call_in_child("os:abort", what=what)
        return call_in_child(job, *arguments, what=what, **named)

    monkeypatch.setattr(planning, "call_in_child", crashing)
    (summary,) = planned_file(request_, compare=True).file.reports
    assert summary.comparison is not None
    assert "SIGABRT" in (summary.comparison.unbounded.problem or "")
    assert [sample.call_unbounded for sample in summary.samples] == [None] * 4
