"""Checks texts as an editor holds them: one lint session for each configuration, workers that stay.

Everything here runs in one thread; the worker processes have TVM loaded and may die of a text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from symalloc.errors import SymallocError, UsageError, shown
from symalloc.linter.lint_options import LintOptions
from symalloc.options import BINDING, SECONDS, option, read_fields, read_table, whole
from symalloc.program.reading import UnreadableError
from symalloc.relax.read.find_files import text_may_hold_modules
from symalloc.relax.read.script_file import parse_text
from symalloc.relax.workers.worker_pool import WorkerPool
from symalloc.session.config import find_config, load_config
from symalloc.session.linting import LintedText, LintSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The settings of the language server.  Raises UsageError for values that make no sense."""

    debounce: int = option(
        50, whole(0), "Milliseconds without a change before a text is checked.", in_file=True
    )
    timeout: float = option(60.0, SECONDS, "The most time for reading one text.", in_file=True)
    bind: Mapping[str, int] = option({}, BINDING, "Sizes at which a hover shows bytes.", in_file=True)

    def __post_init__(self) -> None:
        read_fields(self)


def read_options(given: object) -> ServerOptions:
    """Read the options of an editor, None where it gives none.  Raises UsageError for what makes no sense."""
    if given is None:
        return ServerOptions()
    if not isinstance(given, Mapping):
        raise UsageError(f"initializationOptions is {shown(given)}; it must be an object")
    return ServerOptions(**read_table(ServerOptions, given, "initializationOptions"))


_PATIENCE = 5.0  # seconds for which a text that is outdated is still read: to start TVM anew takes two


class OutdatedError(Exception):
    """The text was changed while it was read, and reading it took long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedText:
    """The outcome of checking `text`.

    `linted` is None where it holds no module, is excluded by the configuration, or could not be checked;
    `failure` says why.
    """

    text: str
    linted: LintedText | None = None
    failure: str = ""


class TextChecker:
    """Lints texts; a session lasts as long as its configuration is unchanged.

    Where `ending` is set, from whatever thread, the text that is read is given up.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._options, self.ending = options, False
        self._pool = WorkerPool(size=1)
        self._sessions: dict[Path | None, tuple[int, LintSession]] = {}

    def start(self) -> None:
        """Start the worker and load the rules, before the first text comes."""
        self._pool.start()
        self._session(None)

    def check(self, path: Path, text: str, outdated: Callable[[], bool] = lambda: False) -> CheckedText:
        """Check `text`, taken as the contents of `path`.

        Raises OutdatedError where it takes long and is `outdated` meanwhile.
        """
        begun = monotonic()

        def watch() -> None:
            if self.ending or (outdated() and monotonic() - begun > _PATIENCE):
                raise OutdatedError

        try:
            configuration = find_config([str(path)])
            session = self._session(configuration)
            file = _shown(path, configuration)
            if session.options.excludes(file) or not _may_hold_modules(path, text):
                return CheckedText(text=text)
            return CheckedText(text=text, linted=session.lint_text(file, text, watch))
        except SymallocError as error:
            return CheckedText(text=text, failure=str(error))

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def _session(self, file: Path | None) -> LintSession:
        """The session of a configuration file, None without one, as the file is now."""
        try:
            changed = file.stat().st_mtime_ns if file else 0
        except OSError:  # deleted a moment ago
            return self._session(None)
        known = self._sessions.get(file)
        if known is None or known[0] != changed:
            options = replace(load_config(file) if file else LintOptions(), timeout=self._options.timeout)
            known = self._sessions[file] = changed, LintSession(options, self._pool)
        return known[1]


def _may_hold_modules(path: Path, text: str) -> bool:
    """True where a text is worth reading: other Python, also with a syntax error in it, is none of ours."""
    if not text_may_hold_modules(path, text):
        return False
    if path.suffix != ".py":
        return True
    try:
        return bool(parse_text(str(path), text).modules)
    except UnreadableError:
        return "tvm" in text


def _shown(path: Path, configuration: Path | None) -> str:
    """The name of the file for patterns of the configuration: relative to its folder."""
    inside = configuration is not None and path.is_relative_to(configuration.parent)
    return os.fspath(path.relative_to(configuration.parent) if inside and configuration else path)
