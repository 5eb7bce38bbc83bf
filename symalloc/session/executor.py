"""Lints files on any executor of `concurrent.futures`; its workers need no file system in common."""

from __future__ import annotations

import pickle
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import LintedFile
from symalloc.program.reading import UnreadableError
from symalloc.relax.read.find_files import kind_of
from symalloc.relax.workers.worker_pool import Watch
from symalloc.rulebook.book import rule_files
from symalloc.session.lint_cache import package_sum
from symalloc.session.linting import LintSession

_DASK = "dask://"
_SECONDS = 10  # for Dask's scheduler, and for a first worker
_VERSIONS = ("apache-tvm", "apache-tvm-ffi", "z3-solver", "onnx", "torch")
_READ_WITH = {"onnx": "onnx", "pt2": "torch"}  # the package that decides what a kind of file holds
_HERE = threading.local()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that a worker needs to lint: the options, the texts of the rules that they name, and the versions
    that the findings depend on.
    """

    options: LintOptions
    rules: tuple[tuple[str, bytes], ...]
    fixes: bool
    versions: Mapping[str, str]

    @classmethod
    def of(cls, options: LintOptions, *, fixes: bool) -> Setup:
        """The setup that lints elsewhere as `options` do here."""
        places = [path for place in options.rules for path in rule_files(place)]
        return cls(
            options=replace(options, rules=(), baseline=None, jobs=1),
            rules=tuple((f"{number}-{path.name}", path.read_bytes()) for number, path in enumerate(places)),
            fixes=fixes,
            versions=installed_versions(),
        )


def lint_on(
    executor: Executor,
    contents: Mapping[Path, bytes],
    options: LintOptions,
    fixes: bool = True,
    watch: Watch | None = None,
) -> dict[Path, LintedFile | str]:
    """Lint `contents`, each taken as that of a file; the message of what failed stands for its findings.

    `watch` is told how many are done.  Raises UsageError where a worker has other versions, and where the
    executor gives the work up.
    """
    setup = pickle.dumps(Setup.of(options, fixes=fixes))
    futures = {
        executor.submit(lint_on_worker, setup, str(file), data): file for file, data in contents.items()
    }
    found: dict[Path, LintedFile | str] = {}
    try:
        for future in as_completed(futures):
            file = futures[future]
            found[file] = _answer(future)
            if watch is not None:
                watch(len(found), len(futures), f"linting {file.name}")
    finally:
        for future in futures:
            future.cancel()
    return found


def _answer(future: Future[LintedFile]) -> LintedFile | str:
    try:
        return future.result()
    except CancelledError:
        raise UsageError("the executor gave up the work: it was shut down, or its cluster is lost") from None
    except UsageError:
        raise
    except Exception as error:  # whatever ends a worker is said of the file that it was busy with
        return f"{type(error).__name__}: {error}"


def installed_versions() -> dict[str, str]:
    """The versions of what findings depend on; "none" where a package is missing."""
    python = ".".join(map(str, sys.version_info[:2]))
    found = {name: _version(name) for name in _VERSIONS}
    return {"Python": python, **found, "symalloc's files": package_sum()[:12]}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def lint_on_worker(setup: bytes, file: str, data: bytes) -> LintedFile:
    """Lint `data`, taken as the contents of `file`, in a process of the executor; `setup` is a pickled Setup.

    Raises UsageError where it has other versions of what counts for the file than the process that asks.
    """
    wanted: Setup = pickle.loads(setup)
    _require_equal(wanted.versions, _reader_of(file, data))
    return _session(setup, wanted).lint_bytes(file, data, fixes=wanted.fixes)


def _reader_of(file: str, data: bytes) -> str | None:
    with suppress(UnreadableError):
        return _READ_WITH.get(kind_of(Path(file), data))
    return None


def _require_equal(wanted: Mapping[str, str], reader: str | None) -> None:
    unread = {*_READ_WITH.values()} - {reader}
    others = {n: v for n, v in installed_versions().items() if n not in unread and wanted[n] != v}
    if others:
        has = " and ".join(f"{name} {version}" for name, version in others.items())
        needs = " and ".join(f"{name} {wanted[name]}" for name in others)
        raise UsageError(f"a worker has {has}, and this process {needs}: findings could differ")


def _session(setup: bytes, wanted: Setup) -> LintSession:
    """The session of this thread: it keeps its worker process, and what was proved, for the next file."""
    if getattr(_HERE, "setup", None) != setup:
        if hasattr(_HERE, "session"):
            _HERE.session.__exit__()
        with tempfile.TemporaryDirectory(prefix="symalloc-") as folder:
            for name, text in wanted.rules:
                (Path(folder) / name).write_bytes(text)
            rules = (Path(folder),) if wanted.rules else ()
            _HERE.session = LintSession(replace(wanted.options, rules=rules))
        _HERE.setup = setup
    session: LintSession = _HERE.session
    return session


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """The executor of the Dask cluster at `address`, `dask://HOST:PORT`.

    Raises UsageError where Dask is missing, nothing answers, or there is no worker.
    """
    if not address.startswith(_DASK):
        raise UsageError(f"--scheduler {address}: expected {_DASK}HOST:PORT")
    try:
        from distributed import Client
    except ImportError:
        raise UsageError(f"--scheduler {address} needs Dask: pip install 'symalloc[dask]'") from None
    try:
        client = Client(f"tcp://{address.removeprefix(_DASK)}", timeout=_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"no Dask scheduler answers at {address}: {error}") from None
    try:
        with suppress(TimeoutError):
            client.wait_for_workers(1, timeout=_SECONDS)
        if not client.scheduler_info()["workers"]:
            raise UsageError(f"the Dask cluster at {address} has no workers")
        yield client.get_executor(pure=False, retries=1)
    finally:
        with suppress(Exception):  # the scheduler may be gone
            client.close(timeout=_SECONDS)
