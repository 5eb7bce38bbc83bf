"""Checks texts as an editor holds them: one lint session for each configuration, workers that stay.

Everything here runs in one thread; the worker processes have TVM loaded and may die of a text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from symalloc.editor.server_options import ServerOptions
from symalloc.errors import SymallocError
from symalloc.linter.diagnostic import Diagnostic, Fix
from symalloc.linter.lint_options import LintOptions
from symalloc.program.reading import UnreadableError
from symalloc.relax.read.find_files import text_may_hold_modules
from symalloc.relax.read.script_file import parse_text
from symalloc.relax.workers.worker_pool import WorkerPool
from symalloc.session.config import find_config, load_config
from symalloc.session.linting import LintedText, LintSession

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
    session: LintSession | None = None
    failure: str = ""
    _fixes: dict[int, tuple[Fix, ...]] = field(default_factory=dict)

    def fixes(self, wanted: Iterable[Diagnostic]) -> dict[int, tuple[Fix, ...]]:
        """The fixes that help of the findings that are `wanted`, by `id`; each finding is tried once."""
        if self.linted is None or self.session is None:
            return {}
        asked = list(wanted)
        untried = [d for d in asked if d.candidates and id(d) not in self._fixes]
        if untried:
            tried = self.session.fixes_in(self.linted, untried)
            self._fixes.update({id(d): tried.get(id(d), ()) for d in untried})
        return {id(d): self._fixes.get(id(d), ()) for d in asked}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configuration:
    """A configuration file, None without one, as it was when it was last changed."""

    file: Path | None = None
    changed: int = 0


class TextChecker:
    """Lints texts; a session lasts as long as its configuration is unchanged.

    Where `ending` is set, from whatever thread, the text that is read is given up.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._options, self.ending = options, False
        self._pool = WorkerPool(size=1)
        self._sessions: dict[_Configuration, LintSession] = {}
        self._last: dict[Path, tuple[_Configuration, CheckedText]] = {}

    def start(self) -> None:
        """Start the worker and load the rules, before the first text comes."""
        self._pool.start()
        self._session(_Configuration())

    def check(self, path: Path, text: str, outdated: Callable[[], bool] = lambda: False) -> CheckedText:
        """Check `text`, taken as the contents of `path`; the last outcome where nothing has changed since.

        Raises OutdatedError where it takes long and is `outdated` meanwhile.
        """
        try:
            configuration = _configuration(path)
            known = self._last.get(path)
            if known is not None and known[0] == configuration and known[1].text == text:
                return known[1]
            checked = self._checked(path, text, configuration, outdated)
        except SymallocError as error:
            return CheckedText(text=text, failure=str(error))
        self._last[path] = (configuration, checked)
        return checked

    def forget(self, path: Path) -> None:
        """Drop what is known of `path`, which is no longer open."""
        self._last.pop(path, None)

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def _checked(
        self, path: Path, text: str, configuration: _Configuration, outdated: Callable[[], bool]
    ) -> CheckedText:
        session = self._session(configuration)
        file = _shown(path, configuration)
        if session.options.excludes(file) or not _may_hold_modules(path, text):
            return CheckedText(text=text)
        begun = monotonic()

        def watch(*_: object) -> None:
            if self.ending or (outdated() and monotonic() - begun > _PATIENCE):
                raise OutdatedError

        return CheckedText(text=text, linted=session.lint_text(file, text, watch), session=session)

    def _session(self, configuration: _Configuration) -> LintSession:
        if configuration not in self._sessions:
            options = load_config(configuration.file) if configuration.file else LintOptions()
            stale = [other for other in self._sessions if other.file == configuration.file]
            session = LintSession(replace(options, timeout=self._options.timeout), self._pool)
            for other in stale:
                del self._sessions[other]
            self._sessions[configuration] = session
        return self._sessions[configuration]


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


def _configuration(path: Path) -> _Configuration:
    file = find_config([str(path)])
    if file is None:
        return _Configuration()
    try:
        return _Configuration(file=file, changed=file.stat().st_mtime_ns)
    except OSError:  # deleted a moment ago
        return _Configuration()


def _shown(path: Path, configuration: _Configuration) -> str:
    """The name of the file for patterns of the configuration: relative to its folder."""
    folder = configuration.file.parent if configuration.file else None
    inside = folder is not None and path.is_relative_to(folder)
    return os.fspath(path.relative_to(folder)) if inside and folder else os.fspath(path)
