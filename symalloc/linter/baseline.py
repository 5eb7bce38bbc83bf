"""Baselines: the findings that a project knows of, in a file, so that a run shows the new ones only.

A finding is known again by its fingerprint.  One that got worse counts as new, and what could not be read
(SYM902) is never known.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import msgspec

from symalloc.errors import UsageError
from symalloc.linter.diagnostic import CANNOT_BE_READ, Diagnostic, Report, Severity
from symalloc.program.span import split_lines
from symalloc.prover.verdict import Verdict


def fingerprints(report: Report) -> list[str]:
    """The key of each finding: of its rule, function and the text of its line, not of the line's number.

    Findings of one file that agree in all of that are numbered.  The file's name is no part of a key.
    """
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for diagnostic in report:
        line = _line_of(diagnostic, report) or diagnostic.message
        text = "\0".join((*diagnostic.kind, diagnostic.stage or "", line))
        seen[diagnostic.file, text] += 1
        found.append(hashlib.sha256(f"{text}\0{seen[diagnostic.file, text]}".encode()).hexdigest()[:32])
    return found


def _line_of(d: Diagnostic, report: Report) -> str:
    source = report.sources.get(d.span.file) if d.span else None
    lines = split_lines(source.text) if source else []
    return lines[d.span.line - 1].strip() if d.span and d.span.line <= len(lines) else ""


VERSION = 1
Key: TypeAlias = tuple[str, str]  # the file, and the fingerprint


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True): ...


class KnownFinding(_Part, frozen=True, kw_only=True):
    """A finding of a baseline; `file` is relative to the baseline's folder."""

    file: str
    rule: str
    function: str
    severity: Severity
    verdict: Verdict | None
    fingerprint: str

    def covers(self, diagnostic: Diagnostic) -> bool:
        """True where `diagnostic`, which has the same fingerprint, is no worse than this."""
        definite = diagnostic.verdict is Verdict.ALWAYS_INVALID and self.verdict is not diagnostic.verdict
        return diagnostic.severity.rank >= self.severity.rank and not definite


class BaselineDocument(_Part, frozen=True, kw_only=True, tag_field="version", tag=VERSION):
    """The findings that are known to a project."""

    findings: tuple[KnownFinding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The findings known to a project; `folder` is the one that their files are relative to."""

    folder: Path
    known: Mapping[Key, KnownFinding]

    @classmethod
    def of(cls, report: Report, file: Path) -> Baseline:
        """Make the baseline of all findings of `report`, to be written to `file`.

        Raises UsageError where something could not be read: its findings would be missing.
        """
        if report.unread:
            raise UsageError(
                f"no baseline written to {file}: {report.unread[0]} could not be read in full (SYM902)"
            )
        folder = file.parent.resolve()
        found = zip(report, fingerprints(report), strict=True)
        known = (
            KnownFinding(
                file=_relative(d.file, folder),
                rule=d.rule,
                function=d.function,
                severity=d.severity,
                verdict=d.verdict,
                fingerprint=key,
            )
            for d, key in found
        )
        return cls(folder=folder, known={(one.file, one.fingerprint): one for one in known})

    @classmethod
    def load(cls, file: Path) -> Baseline:
        """Read the baseline in `file`; raises UsageError where it cannot be read or is none."""
        try:
            known = msgspec.json.decode(file.read_bytes(), type=BaselineDocument).findings
        except OSError as error:
            raise UsageError(f"baseline {file}: cannot be read: {error.strerror}") from None
        except msgspec.ValidationError as error:
            raise UsageError(
                f"baseline {file}: not a file that this `symalloc lint --write-baseline` wrote: {error}"
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise UsageError(f"baseline {file}: not valid JSON") from None
        return cls(folder=file.parent.resolve(), known={(one.file, one.fingerprint): one for one in known})

    def text(self) -> str:
        """The baseline as JSON: sorted, a line for each finding."""
        order = sorted(self.known.values(), key=lambda k: (k.file, k.rule, k.function, k.fingerprint))
        lines = ",\n".join(f"  {msgspec.json.encode(one).decode()}" for one in order)
        findings = f"[\n{lines}\n]" if lines else "[]"
        return f'{{"version": {VERSION}, "findings": {findings}}}\n'

    def applied(
        self, report: Report, rules: Collection[str], may_hold_modules: Callable[[Path], bool] = Path.is_file
    ) -> Report:
        """Leave the known findings out of `report`, and count them and those that are gone.

        A known finding is gone where the run checked its file with its rule (one of `rules`), or where the
        file is no more, or no model any more: `may_hold_modules` tells.
        """
        new, met = [], set()
        for diagnostic, fingerprint in zip(report, fingerprints(report), strict=True):
            key = (_relative(diagnostic.file, self.folder), fingerprint)
            known = self.known.get(key)
            if known is not None:
                met.add(key)
            if known is None or diagnostic.rule == CANNOT_BE_READ or not known.covers(diagnostic):
                new.append(diagnostic)
        read = {_relative(file, self.folder) for file in report.files}
        read -= {_relative(file, self.folder) for file in report.unread}
        stale = sum(
            one.rule in rules and (one.file in read or self._is_gone(one.file, may_hold_modules))
            for key, one in self.known.items()
            if key not in met
        )
        return replace(report, diagnostics=tuple(new), known=len(report) - len(new), stale=stale)

    def _is_gone(self, file: str, may_hold_modules: Callable[[Path], bool]) -> bool:
        script = file.rpartition(":")[0] or file  # of `file.py:function`
        there = next((f for f in (file, script) if os.path.lexists(self.folder / f)), None)
        if file.startswith("<") or there == script != file:
            return False
        path = self.folder / file
        return there is None or (path.is_file() and not may_hold_modules(path))


def _relative(file: str, folder: Path) -> str:
    """The path of `file` from `folder`, with slashes; what is no file (`<stdin>`) keeps its name."""
    if not file or file.startswith("<"):
        return file
    path = Path(file)
    return Path(os.path.relpath(path.parent.resolve() / path.name, folder)).as_posix()
