"""Lints files on the workers of an existing Dask cluster: `symalloc lint --scheduler dask://host:port`."""

from __future__ import annotations

import logging
import pickle
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symalloc.arguments import require_text
from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linted_file import LintedFile
from symalloc.relax.workers.worker_pool import Watch
from symalloc.rulebook.book import rule_files

if TYPE_CHECKING:
    from symalloc.linting import LintSession

PREFIX = "dask://"
_SECONDS = 10  # for the scheduler, and for a first worker
_VERSIONS = ("symalloc", "apache-tvm")
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
        if not address.startswith(PREFIX) or not address.removeprefix(PREFIX):
            raise UsageError(f"--scheduler {address}: expected {PREFIX}HOST:PORT")
        self._client = self._connected()

    def __enter__(self) -> DaskScheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def linted(
        self,
        contents: Mapping[Path, bytes],
        options: LintOptions,
        *,
        fixes: bool,
        watch: Watch | None = None,
    ) -> Mapping[Path, LintedFile | str]:
        """Lint `contents` on the workers; see `Scheduler.linted`."""
        setup = pickle.dumps(_setup(options, fixes=fixes))
        futures = {
            self._client.submit(lint_on_worker, setup, str(file), data, pure=False, retries=1): file
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

        Raises UsageError where the connection is lost.
        """
        from distributed import as_completed

        for future in as_completed(futures, loop=self._client.loop):
            try:
                yield future, _answer(future)
            except CancelledError:
                raise UsageError(
                    f"the connection to {self._address} was lost, or the work cancelled"
                ) from None

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
        try:
            client = Client(address, timeout=_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            said = str(error) or type(error).__name__
            raise UsageError(f"no Dask scheduler answers at {self._address}: {said}") from None
        try:
            self._check_workers(client)
        except BaseException:
            client.close()
            raise
        return client

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
            if there != here:
                raise UsageError(
                    f"the worker {worker} has {_versions(there)}, and this process {_versions(here)}: "
                    "findings could differ"
                )


def _answer(future: Any) -> LintedFile | str:
    """The findings, or the message of the error; raises CancelledError without a scheduler."""
    error = future.exception()
    if isinstance(error, CancelledError):
        raise error
    found: LintedFile | str = future.result() if error is None else f"{type(error).__name__}: {error}"
    return found


def installed_versions() -> tuple[str, ...]:
    """The versions of the packages that findings depend on."""
    return tuple(metadata.version(package) for package in _VERSIONS)


def lint_on_worker(setup: bytes, file: str, data: bytes) -> LintedFile:
    """Lint `data`, taken as the contents of `file`, in a process of the cluster."""
    session, fixes = _session(setup)
    return session.lint_bytes(file, data, fixes=fixes)


def _session(setup: bytes) -> tuple[LintSession, bool]:
    """The session of this thread: it keeps its worker process, and what was proved, for the next file."""
    from symalloc.linting import LintSession

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


def _versions(versions: tuple[str, ...]) -> str:
    return " and ".join(f"{name} {version}" for name, version in zip(_VERSIONS, versions, strict=True))
