"""Files linted on a Dask cluster."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

import symalloc
from symalloc.cli.main import main
from symalloc.dask_scheduler import DaskScheduler, Setup, _answer, installed_versions, lint_on_worker
from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import LintedFile
from symalloc.relax.read.find_files import FoundFiles
from symalloc.relax.workers.worker_pool import WorkerPool
from symalloc.rulebook.book import load_rules
from symalloc.session.linting import LintSession
from tests.scale import NIGHTLY

Run = Callable[..., tuple[int, str, str]]
FAULTY = Path(__file__).parents[1] / "examples" / "issue_17322.py"
SOUND = Path(__file__).parents[1] / "examples" / "mlp.py"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call


def test_without_dask_one_line_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    status, out, err = run("lint", str(SOUND), "--scheduler", "dask://127.0.0.1:1")
    assert (status, out) == (2, "")
    assert err == "error: --scheduler dask://127.0.0.1:1 needs Dask: pip install 'symalloc[dask]'\n"


@pytest.mark.parametrize(
    "address",
    [
        "tcp://127.0.0.1:1",
        "dask://",
        "8786",
        "dask://127.0.0.1",
        "dask://127.0.0.1:",
        "dask://127.0.0.1:http",
        "dask://:8786",
        "dask://127.0.0.1:0",
        "dask://127.0.0.1:65536",
        "dask://tcp://127.0.0.1:8786",
        "dask://::1:8786",
    ],
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(UsageError, match="expected dask://HOST:PORT"):
        DaskScheduler(address)
    with pytest.raises(UsageError, match="expected dask://HOST:PORT"):
        symalloc.lint(SOUND, scheduler=address)


def test_a_scheduler_that_does_not_answer_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("symalloc.dask_scheduler._SECONDS", 0.2)
    status, out, err = run("lint", str(SOUND), "--scheduler", "dask://127.0.0.1:1")
    assert (status, out) == (2, "")
    assert err.startswith("error: no Dask scheduler answers at dask://127.0.0.1:1: ")
    assert err.count("\n") == 1


def test_what_answers_and_is_no_scheduler_is_not_waited_for(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("symalloc.dask_scheduler._SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"dask://127.0.0.1:{silent.getsockname()[1]}"
        status, out, err = run("lint", str(SOUND), "--scheduler", address)
    assert (status, out) == (2, "")
    assert err == f"error: no Dask scheduler answers at {address}: nothing that it says within 0.3 s\n"
    monkeypatch.setattr("symalloc.dask_scheduler._in_thread", lambda work: "Worker")
    with pytest.raises(UsageError, match="no Dask scheduler answers at dask://here:1: it is a Worker"):
        DaskScheduler("dask://here:1")


@pytest.mark.parametrize("missing", ["Python", "apache-tvm", "z3-solver", "symalloc's files", "torch"])
def test_a_worker_with_other_versions_refuses(missing: str) -> None:
    versions = {**installed_versions(("onnx", "torch")), missing: "0"}
    name, said = ("model.pt2" if missing == "torch" else "model.py"), f"has {re.escape(missing)} "
    with pytest.raises(UsageError, match=rf"the worker of the cluster {said}.* findings could differ"):
        lint_on_worker(b"", name, b"", versions)


class _Ended:
    """A future that ended with `error`."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def exception(self) -> Exception:
        return self._error


def test_what_went_wrong_on_a_worker_is_told_or_ends_the_run() -> None:
    killed = type("KilledWorker", (Exception,), {})("task-0123 at tcp://127.0.0.1:5")
    assert _answer(_Ended(killed)) == "the workers that tried it died"
    assert _answer(_Ended(KeyError("x"))) == "KeyError: 'x'"
    with pytest.raises(UsageError, match="findings could differ"):
        _answer(_Ended(UsageError("findings could differ")))


def test_a_scheduler_that_goes_away_while_it_answers_is_said(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unreachable(_Lost):
        def exception(self) -> None:
            raise OSError("in <TCP (closed) ConnectionPool.gather>")

    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(DaskScheduler, "_connected", lambda scheduler: Unreachable())
    monkeypatch.setattr(distributed, "as_completed", lambda futures, loop: futures)
    status, _, err = run("lint", str(SOUND), "-q", "--scheduler", "dask://somewhere:1")
    assert (status, err) == (
        2,
        "error: the connection to dask://somewhere:1 was lost, or the work cancelled\n",
    )


class _Deserted:
    """A client whose cluster has no worker, and its loop, in which nothing ends."""

    loop = None

    def scheduler_info(self) -> dict[str, object]:
        return {"workers": {}}

    def close(self, timeout: float) -> None:
        raise TimeoutError

    def submit(self, *_: object, **__: object) -> object:
        return object()


def test_a_cluster_that_lost_its_workers_is_not_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(DaskScheduler, "_connected", lambda scheduler: _Deserted())
    monkeypatch.setattr(distributed, "as_completed", lambda futures, loop: ())
    monkeypatch.setattr("symalloc.dask_scheduler._SECONDS_WITHOUT_WORKERS", 0.05)
    monkeypatch.setattr("symalloc.dask_scheduler._LOOK", 0.02)
    status, out, err = run("lint", str(SOUND), "-q", "--scheduler", "dask://somewhere:1")
    assert (status, out) == (2, "")
    assert err == "error: no worker is left in the Dask cluster at dask://somewhere:1\n"


@pytest.mark.usefixtures("warm_workers")
def test_a_worker_lints_what_it_is_sent(tmp_path: Path) -> None:
    import pickle

    from symalloc.dask_scheduler import _setup

    rules = tmp_path / "rules"
    rules.mkdir()
    mine = load_rules().get("SYM101").file.read_text()
    (rules / "mine.toml").write_text(
        mine.replace("SYM101", "HOUSE101").replace("tensor-exceeds", "house-exceeds")
    )
    setup = _setup(LintOptions(rules=(rules,), select=("SYM101", "HOUSE101"), jobs=7), fixes=True)
    assert isinstance(setup, Setup)
    here = symalloc.lint(FAULTY, select=["SYM101", "HOUSE101"], rules=rules)
    assert [d.rule for d in here] == ["HOUSE101", "SYM101"]
    versions = installed_versions(("onnx", "torch"))
    there = lint_on_worker(pickle.dumps(setup), str(FAULTY), FAULTY.read_bytes(), versions)
    assert there.report.diagnostics == here.diagnostics
    assert there.report.files == here.files
    gone = lint_on_worker(pickle.dumps(setup), "elsewhere/model.py", FAULTY.read_bytes(), versions)
    assert [d.span and d.span.file for d in gone.report] == ["elsewhere/model.py"] * 2


class _Dying:
    """A scheduler on which the workers of some files die."""

    def linted(
        self, contents: Mapping[Path, bytes], *_: object, **__: object
    ) -> dict[Path, LintedFile | str]:
        return dict.fromkeys(contents, "KilledWorker: attempted to run on 3 workers")


def test_a_worker_that_dies_is_a_finding(kept_pool: WorkerPool) -> None:
    session = LintSession(LintOptions(), kept_pool, scheduler=_Dying())
    report = session.lint_files(FoundFiles(files=(FAULTY, SOUND), skipped=0))
    assert report.unread == (str(FAULTY), str(SOUND))
    assert "linting it on a worker failed: KilledWorker" in report.diagnostics[0].message


class _Lost:
    """A future, and the client that made it, whose scheduler is gone."""

    loop = None

    def submit(self, *_: object, **__: object) -> _Lost:
        return self

    def exception(self) -> None:
        raise CancelledError

    def close(self, timeout: float) -> None:
        pass


def test_a_connection_that_is_lost_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(DaskScheduler, "_connected", lambda scheduler: _Lost())
    monkeypatch.setattr(distributed, "as_completed", lambda futures, loop: futures)
    status, out, err = run("lint", str(SOUND), "-q", "--scheduler", "dask://somewhere:1")
    assert (status, out, err) == (
        2,
        "",
        "error: the connection to dask://somewhere:1 was lost, or the work cancelled\n",
    )


@pytest.mark.skipif(not NIGHTLY, reason="starts a cluster")
@pytest.mark.real_process
@pytest.mark.filterwarnings("ignore")
def test_two_workers_say_what_this_process_says(run: Run, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    for rule in load_rules().rules:
        for number, example in enumerate((*rule.bad, *rule.good)):
            (tmp_path / f"{rule.id}_{number}.py").write_text(example.module)
    (tmp_path / "broken.py").write_text("@I.ir_module\nclass Module\n")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster:
        address = f"dask://{cluster.scheduler_address.removeprefix('tcp://')}"
        for form in ("text", "sarif", "github", "junit", "concise", "json"):
            arguments = ("lint", str(tmp_path), "-q", "--no-cache", "--format", form)
            here, there = run(*arguments, "--jobs", "1"), run(*arguments, "--scheduler", address)
            assert _without_times(there) == _without_times(here)
            assert here[0] == 2


def _without_times(said: tuple[int, str, str]) -> tuple[int, str, str]:
    return said[0], re.sub(r'"seconds": [0-9.e-]+', "", said[1]), said[2]
