"""Files found, planned and packed as the command line and Python ask for it."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from symalloc import pack
from symalloc.errors import UsageError
from symalloc.planner.memory_plan import PlanOptions
from symalloc.relax.files.requests import PlanRequest
from symalloc.relax.read.open_model import load_module
from symalloc.relax.workers.worker_pool import call_in_child
from symalloc.session import planning
from symalloc.session.files import read_source, write_atomically, write_source
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
        if job.endswith(":compare_file"):
            return call_in_child("os:abort", what=what)
        return call_in_child(job, *arguments, what=what, **named)

    monkeypatch.setattr(planning, "call_in_child", crashing)
    (summary,) = planned_file(request_, compare=True).file.reports
    assert summary.comparison is not None
    assert "SIGABRT" in (summary.comparison.unbounded.problem or "")
    assert [sample.call_unbounded for sample in summary.samples] == [None] * 4


PROBLEM = {
    "symbols": {"n": {}},
    "buffers": [
        {"id": "x", "size": "64*n", "lower": 0, "upper": 2},
        {"id": "y", "size": "128", "lower": 1, "upper": 3},
    ],
}


def test_a_dictionary_and_a_file_give_the_same(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps(PROBLEM))
    answers = [pack(PROBLEM, effort="quick"), pack(file, effort="quick"), pack(str(file), effort="quick")]
    assert {str(a.arena) for a in answers} == {"64*n + 128"}
    assert len({tuple(sorted((k, str(v)) for k, v in a.offsets.items())) for a in answers}) == 1


def test_errors_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(
        '{"buffers": [{"id": 1, "size": "8 // n", "lower": 0, "upper": 1}], "symbols": {"n": {"min": 0}}}'
    )
    with pytest.raises(
        UsageError, match=r"p\.json: buffers\[0\] \(`1`\)\.size: .* makes sense only where n >= 1"
    ):
        pack(file)
    with pytest.raises(UsageError, match=r"the id of a buffer is empty"):
        pack({"buffers": [{"id": "", "size": 1, "lower": 0, "upper": 1}]})


def test_absurd_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="a size goes beyond"):
        pack({"symbols": {"n": {}}, "buffers": [{"id": "x", "size": "n * 2**4000", "lower": 0, "upper": 1}]})
    assert pack({"buffers": [{"id": "x", "size": "2**70", "lower": 0, "upper": 1}]}).arena == 2**70


@pytest.mark.parametrize(
    "data", [b"x = 1\r\ny = 2\r\n", "# é\n".encode(), b"# coding: latin-1\n# \xe9\n", b"\xef\xbb\xbfx = 1\n"]
)
def test_a_source_is_written_back_as_it_was(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(data)
    write_source(path, read_source(path))
    assert path.read_bytes() == data


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.py", tmp_path / "link.py"
    real.write_text("x")
    link.symlink_to(real)
    write_atomically(link, b"y")
    assert link.is_symlink()
    assert real.read_bytes() == b"y"


def test_what_is_no_regular_file_is_written_to_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as other:
        read = other.submit(pipe.read_bytes)
        write_atomically(pipe, b"data")
        assert read.result(10) == b"data"
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("# coding: latin-1\n")
    with pytest.raises(UnicodeEncodeError):
        write_source(path, "漢")
    assert [p.name for p in tmp_path.iterdir()] == ["m.py"]
    assert path.read_text() == "# coding: latin-1\n"
