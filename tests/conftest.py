"""What all tests share.

`golden(name, text)` compares with the file beside the test; --update-golden writes it.  `warm_workers` keeps
one worker process alive from test to test.  With xdist the tests of a file stay together, because fixtures of
a module are dear; those marked slow come last, or, among several processes, first.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: its idle threads take time from the tests

import gc
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import BytesIO, TextIOWrapper
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

from symalloc.relax.workers.worker_pool import WorkerPool
from tests.compile_once import compile_kernels_once
from tests.fork_server import ForkingPopen
from tests.quick_scripts import read_scripts_quickly
from tests.scale import NIGHTLY

gc.disable()  # until all tests are there: of what is imported nothing goes

# no deadline: a busy machine is no failure.  The same examples in every run; others each night
settings.register_profile("daily", deadline=None, derandomize=True, database=None)
settings.register_profile("nightly", deadline=None, print_blob=True)
settings.load_profile("nightly" if NIGHTLY else "daily")

# nohup, a shell's background, a supervisor: they have signals ignored or blocked, and children inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGALRM, signal.SIGCHLD):
    signal.signal(number, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())


def pytest_configure(config: pytest.Config) -> None:
    """Take the short cuts, but in a process that only hands out the tests: it needs no TVM."""
    if not NIGHTLY and not getattr(config.option, "numprocesses", None):
        compile_kernels_once()
        read_scripts_quickly()


def pytest_collection_finish() -> None:
    """Spare the collector: it need not look again at what there is now, a million objects."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


_NUMBERS = count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    folder = Path(request.path).parent / "golden"

    def compare(name: str, text: str) -> None:
        file = folder / name
        if request.config.getoption("--update-golden"):
            folder.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8")

    return compare


@pytest.fixture(scope="session", autouse=True)
def _fork_server() -> Iterator[None]:
    yield
    if ForkingPopen.server is not None:
        ForkingPopen.server.close()


@pytest.fixture(autouse=True)
def _forked_children(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork symalloc's child processes from a server that has imported TVM."""
    if not request.node.get_closest_marker("real_process"):
        monkeypatch.setattr(subprocess, "Popen", ForkingPopen)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the findings of `symalloc lint` where no other test looks."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / f"cache{next(_NUMBERS)}"))


@pytest.fixture(scope="session")
def kept_pool() -> Iterator[WorkerPool]:
    """One worker process for all tests that read files and are not about workers."""
    with WorkerPool(1) as pool:
        yield pool


@pytest.fixture
def warm_workers(kept_pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pool of the test has the one worker that other tests had: TVM is imported once, not in each."""

    def begin(pool: WorkerPool, size: int | None = None) -> None:
        pool._size, pool._workers = 1, kept_pool._workers

    monkeypatch.setattr(WorkerPool, "__init__", begin)
    monkeypatch.setattr(WorkerPool, "close", lambda pool: None)


# what runs where `-m` asks for it
ON_REQUEST = {"sanitize"} if NIGHTLY else {"sanitize", "browser", "editor", "nightly"}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what nobody asks for; put what is slow last, among several processes first."""
    names = {name for name in ON_REQUEST if name not in config.getoption("markexpr")}
    left_out = [item for item in items if any(mark.name in names for mark in item.iter_markers())]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(map(id, left_out))
        items[:] = [item for item in items if id(item) not in gone]
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    if hasattr(config, "workerinput"):  # the long files first, so that no process is left with one
        items.sort(key=lambda item: item.path not in slow)
    else:
        items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # a file of many tests is no long one
    return LoadFileScheduling(config, log)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call `symalloc` with the arguments; give the exit status and the text of both streams."""

    def call(*arguments: str | Path, stdin: bytes | None = None) -> tuple[int, str, str]:
        from symalloc.cli.main import main

        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(stdin)))
        with pytest.raises(SystemExit) as stop:
            main(list(map(str, arguments)))
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call
