"""Files linted on executors: threads, and a Dask cluster."""

from __future__ import annotations

import re
import sys
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import symalloc
from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.relax.read.find_files import FoundFiles
from symalloc.relax.workers.worker_pool import WorkerPool
from symalloc.rulebook.rule import load_rules
from symalloc.session.linting import LintSession, Setup, dask_executor, lint_on_worker
from tests.conftest import Run

EXAMPLES = Path(__file__).parents[2] / "examples"
FAULTY = EXAMPLES / "issue_17322.py"
SOUND = EXAMPLES / "mlp.py"


class Ended(Executor):
    """An executor whose work has ended with `error`, or was cancelled."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self._error is None:
            future.cancel()
            future.set_running_or_notify_cancel()
        else:
            future.set_exception(self._error)
        return future


@pytest.mark.usefixtures("warm_workers")
def test_threads_find_what_this_process_finds(tmp_path: Path) -> None:
    """Rules of one's own are sent along."""
    mine = load_rules().get("SYM101").file.read_text()
    (tmp_path / "mine.toml").write_text(
        mine.replace("SYM101", "HOUSE101").replace("tensor-exceeds", "house-exceeds")
    )
    wanted: dict[str, Any] = {"select": ["SYM101", "HOUSE101"], "rules": tmp_path}
    here = symalloc.lint([FAULTY, SOUND], **wanted)
    assert [d.rule for d in here] == ["HOUSE101", "SYM101"]
    with ThreadPoolExecutor(1) as executor:
        there = symalloc.lint([FAULTY, SOUND], **wanted, executor=executor)
    assert there.diagnostics == here.diagnostics
    assert there.files == here.files


@pytest.mark.parametrize("missing", ["Python", "apache-tvm", "z3-solver", "symalloc's files", "torch"])
def test_a_worker_with_other_versions_refuses(missing: str) -> None:
    setup = Setup.of(LintOptions(), fixes=True)
    other = replace(setup, versions={**setup.versions, missing: "0"})
    with pytest.raises(UsageError, match=rf"a worker has {re.escape(missing)} .* findings could differ"):
        lint_on_worker(other, "model.pt2" if missing == "torch" else "model.py", b"")


def test_what_ends_a_worker_is_a_finding(kept_pool: WorkerPool) -> None:
    session = LintSession(LintOptions(), kept_pool, executor=Ended(KeyError("x")))
    report = session.lint_files(FoundFiles(files=(FAULTY, SOUND), skipped=0))
    assert report.unread == (str(FAULTY), str(SOUND))
    assert "linting it on a worker failed: KeyError: 'x'" in report.diagnostics[0].message


@pytest.mark.parametrize(
    ("error", "said"), [(None, "the executor gave up the work"), (UsageError("other versions"), "other ver")]
)
def test_what_ends_the_work_ends_the_run(error: Exception | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        symalloc.lint(SOUND, executor=Ended(error))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "8786"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(UsageError, match="expected dask://HOST:PORT"), dask_executor(address):
        pass


def test_without_dask_one_line_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    status, out, err = run("lint", str(SOUND), "--scheduler", "dask://127.0.0.1:1")
    assert (status, out) == (2, "")
    assert err == "error: --scheduler dask://127.0.0.1:1 needs Dask: pip install 'symalloc[dask]'\n"


def test_a_scheduler_that_does_not_answer_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("symalloc.session.linting._SECONDS", 0.2)
    status, out, err = run("lint", str(SOUND), "--scheduler", "dask://127.0.0.1:1")
    assert (status, out) == (2, "")
    assert err.startswith("error: no Dask scheduler answers at dask://127.0.0.1:1: ")


@pytest.mark.nightly
@pytest.mark.real_process
@pytest.mark.filterwarnings("ignore")
def test_two_workers_of_dask_say_what_this_process_says(run: Run, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    for rule in load_rules().rules[::4]:
        for number, example in enumerate(rule.bad):
            (tmp_path / f"{rule.id}_{number}.py").write_text(example.module)
    (tmp_path / "broken.py").write_text("@I.ir_module\nclass Module\n")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster:
        address = f"dask://{cluster.scheduler_address.removeprefix('tcp://')}"
        for form in ("text", "json"):
            arguments = ("lint", str(tmp_path), "-q", "--no-cache", "--format", form)
            here, there = run(*arguments, "--jobs", "1"), run(*arguments, "--scheduler", address)
            assert _without_times(there) == _without_times(here)
            assert here[0] == 2


def _without_times(said: tuple[int, str, str]) -> tuple[int, str, str]:
    return said[0], re.sub(r'"seconds": [0-9.e-]+', "", said[1]), said[2]
