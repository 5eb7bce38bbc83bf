"""Lints files on the workers of an existing Dask cluster: `symalloc lint --scheduler dask://host:port`."""

from __future__ import annotations

import asyncio
import logging
import pickle
import re
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from symalloc.arguments import require_text
from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import LintedFile
from symalloc.program.reading import UnreadableError
from symalloc.relax.read.model_file import ModelKind, kind_of
from symalloc.relax.workers.worker_pool import Watch
from symalloc.rulebook.book import rule_files
from symalloc.session.lint_cache import package_sum

if TYPE_CHECKING:
    from symalloc.session.linting import LintSession

Made = TypeVar("Made")
PREFIX = "dask://"
_ADDRESS = re.compile(re.escape(PREFIX) + r"(\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")
_SECONDS = 10  # for the scheduler, and for a first worker
_SECONDS_WITHOUT_WORKERS = 60.0  # before the work is given up; workers that died are started again
_LOOK = 1.0  # seconds between two looks for workers
_VERSIONS = ("symalloc", "apache-tvm", "apache-tvm-ffi", "z3-solver")
_READER_OF: Mapping[ModelKind, str] = {"onnx": "onnx", "pt2": "torch"}
_READERS = tuple(_READER_OF.values())
_HERE = threading.local()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that a worker needs to lint: the options, and the texts of the rules that they name."""

    options: LintOptions
    rules: tuple[tuple[str, bytes], ...]
    fixes: bool


class DaskScheduler:
    """A connection to the scheduler of a Dask cluster whose workers have the same symalloc and TVM.

    Use it in a `with` statement: the connection is closed when that is left.
    """

    def __init__(self, address: str) -> None:
        """Connect; raises UsageError where Dask is missing, nothing answers, or the workers are others."""
        self._address = require_text("scheduler", address)
        if not _has_host_and_port(address):
            raise UsageError(f"--scheduler {address}: expected {PREFIX}HOST:PORT")
        self._client = self._connected()

    def __enter__(self) -> DaskScheduler:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):  # the scheduler may be gone
            self._client.close(timeout=_SECONDS)

    def linted(
        self,
        contents: Mapping[Path, bytes],
        options: LintOptions,
        *,
        fixes: bool,
        watch: Watch | None = None,
    ) -> Mapping[Path, LintedFile | str]:
        """Lint `contents` on the workers; see `Scheduler.linted`."""
        setup, versions = pickle.dumps(_setup(options, fixes=fixes)), installed_versions(_READERS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large files
            futures = {
                self._client.submit(
                    lint_on_worker, setup, str(file), data, versions, pure=False, retries=1
                ): file
                for file, data in contents.items()
            }
        found: dict[Path, LintedFile | str] = {}
        for future, answer in self._answers(list(futures)):
            found[futures[future]] = answer
            if watch is not None:
                watch(len(found), len(futures), f"linting {futures[future].name}")
        return found

    def _answers(self, futures: Sequence[Any]) -> Iterator[tuple[Any, LintedFile | str]]:
        """The result of each future when it has ended, or the message of its error.

        Raises UsageError where the connection is lost, and where no worker is left for a while.
        """
        ended: Queue[Any] = Queue()
        Thread(target=_pass_on, args=(futures, self._client.loop, ended), daemon=True).start()
        last_sign = monotonic()
        for _ in futures:
            while True:
                try:
                    future = ended.get(timeout=_LOOK)
                    break
                except Empty:
                    last_sign = monotonic() if self._has_workers() else last_sign
                    if monotonic() - last_sign > _SECONDS_WITHOUT_WORKERS:
                        raise UsageError(
                            f"no worker is left in the Dask cluster at {self._address}"
                        ) from None
            try:
                yield future, _answer(future)
            except (CancelledError, OSError):
                raise UsageError(
                    f"the connection to {self._address} was lost, or the work cancelled"
                ) from None
            last_sign = monotonic()

    def _has_workers(self) -> bool:
        with suppress(Exception):  # the scheduler may be gone, too
            return bool(self._client.scheduler_info()["workers"])
        return False

    def _connected(self) -> Any:
        try:
            from distributed import Client
        except ImportError:
            raise UsageError(
                f"--scheduler {self._address} needs Dask: pip install 'symalloc[dask]'"
            ) from None
        for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what they say is said here
        address = f"tcp://{self._address.removeprefix(PREFIX)}"
        self._require_scheduler(address)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of other versions, which are compared below
                client = Client(address, timeout=_SECONDS, set_as_default=False)
        except Exception as error:
            raise UsageError(f"the Dask scheduler at {self._address} is of no use: {_said(error)}") from None
        try:
            self._check_workers(client)
        except BaseException:
            client.close(timeout=_SECONDS)
            raise
        return client

    def _require_scheduler(self, address: str) -> None:
        """Raise UsageError unless a scheduler answers: a Client would wait for others for ever."""
        try:
            kind = _in_thread(lambda: asyncio.run(asyncio.wait_for(_identity(address), _SECONDS)))
        except Exception as error:
            raise UsageError(f"no Dask scheduler answers at {self._address}: {_said(error)}") from None
        if kind != "Scheduler":
            raise UsageError(f"no Dask scheduler answers at {self._address}: it is a {kind}")

    def _check_workers(self, client: Any) -> None:
        try:
            client.wait_for_workers(1, timeout=_SECONDS)
        except TimeoutError:
            raise UsageError(f"the Dask cluster at {self._address} has no workers") from None
        try:
            found = client.run(installed_versions)
        except Exception as error:
            raise UsageError(
                f"a worker of {self._address} cannot import symalloc: {type(error).__name__}: {error}"
            ) from None
        here = installed_versions()
        for worker, there in found.items():
            _require_equal(worker, there, here)


def _has_host_and_port(address: str) -> bool:
    found = _ADDRESS.fullmatch(address)
    return found is not None and 0 < int(found["port"]) < 2**16


async def _identity(address: str) -> str:
    """Return what answers at `address`: "Scheduler", or another part of a cluster."""
    from distributed.core import rpc

    async with rpc(address) as remote:
        return str((await remote.identity())["type"])


def _in_thread(work: Callable[[], Made]) -> Made:
    """Return what `work` does in a thread of its own: here an event loop may run, and Ctrl-C shall count."""
    done: Future[Made] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    return done.result()


def _pass_on(futures: Sequence[Any], loop: Any, ended: Queue[Any]) -> None:
    """Put each future into `ended` when it has ended."""
    from distributed import as_completed

    with suppress(RuntimeError):  # the event loop is closed: nobody waits for them any more
        for future in as_completed(futures, loop=loop):
            ended.put(future)


def _said(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"nothing that it says within {_SECONDS} s"
    return str(error) or type(error).__name__


def _answer(future: Any) -> LintedFile | str:
    """The findings, or the message of the error.

    Raises CancelledError without a scheduler, OSError where it goes away now, and UsageError where the
    worker could not lint anything.
    """
    error = future.exception()
    if isinstance(error, (CancelledError, UsageError)):
        raise error
    if type(error).__name__ == "KilledWorker":  # its message names ports, and tasks
        return "the workers that tried it died"
    found: LintedFile | str = future.result() if error is None else f"{type(error).__name__}: {error}"
    return found


def installed_versions(packages: Sequence[str] = ()) -> dict[str, str]:
    """The versions of what findings depend on, and of further `packages`; "none" where one is missing."""
    found = {name: _version(name) for name in (*_VERSIONS, *packages)}
    python = ".".join(map(str, sys.version_info[:2]))
    return {"Python": python, **found, "symalloc's files": package_sum()[:12]}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def _require_equal(worker: str, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Raise UsageError where the versions of a worker are not those of the process that asks it."""
    others = [name for name in here if there.get(name) != here[name]]
    if others:
        has, wanted = _versions(there, others), _versions(here, others)
        raise UsageError(f"the worker {worker} has {has}, and this process {wanted}: findings could differ")


def lint_on_worker(setup: bytes, file: str, data: bytes, versions: Mapping[str, str]) -> LintedFile:
    """Lint `data`, taken as the contents of `file`, in a process of the cluster.

    Raises UsageError where it has not the `versions` that count for the file: a worker may come later.
    """
    path = Path(file)
    needed = [reader for kind, reader in _READER_OF.items() if _is_kind(path, data, kind)]
    here = installed_versions(needed)
    _require_equal(_own_address(), here, {name: versions[name] for name in here})
    session, fixes = _session(setup)
    return session.lint_bytes(file, data, fixes=fixes)


def _is_kind(path: Path, data: bytes, kind: ModelKind) -> bool:
    try:
        return kind_of(path, data) == kind
    except UnreadableError:
        return False


def _own_address() -> str:
    with suppress(ImportError, ValueError):
        from distributed import get_worker

        return str(get_worker().address)
    return "of the cluster"


def _session(setup: bytes) -> tuple[LintSession, bool]:
    """The session of this thread: it keeps its worker process, and what was proved, for the next file."""
    from symalloc.session.linting import LintSession

    if getattr(_HERE, "setup", None) != setup:
        if hasattr(_HERE, "session"):
            _HERE.session.__exit__()
        wanted: Setup = pickle.loads(setup)
        with tempfile.TemporaryDirectory(prefix="symalloc-") as folder:
            for name, text in wanted.rules:
                (Path(folder) / name).write_bytes(text)
            rules = (Path(folder),) if wanted.rules else ()
            _HERE.session = LintSession(replace(wanted.options, rules=rules))
        _HERE.setup, _HERE.fixes = setup, wanted.fixes
    return _HERE.session, _HERE.fixes


def _setup(options: LintOptions, *, fixes: bool) -> Setup:
    places = [path for place in options.rules for path in rule_files(place)]
    rules = tuple((f"{number}-{path.name}", path.read_bytes()) for number, path in enumerate(places))
    return Setup(options=replace(options, rules=(), baseline=None, jobs=1), rules=rules, fixes=fixes)


def _versions(versions: Mapping[str, str], names: Iterable[str]) -> str:
    return " and ".join(f"{name} {versions.get(name, 'none')}" for name in names)
