"""The files of a lint run, and who else may lint them; loads nothing that lints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.relax.read.find_files import FoundFiles, find
from symalloc.relax.workers.worker_pool import Watch

if TYPE_CHECKING:
    from symalloc.linter.linter import LintedFile


class Scheduler(Protocol):
    """Other processes that lint files, wherever they are."""

    def linted(
        self,
        contents: Mapping[Path, bytes],
        options: LintOptions,
        *,
        fixes: bool,
        watch: Watch | None = None,
    ) -> Mapping[Path, LintedFile | str]:
        """Lint `contents`, each taken as that of a file; the message of what failed stands for its findings.

        `watch` is told how many are done.
        """


def found_files(options: LintOptions, paths: Sequence[str]) -> FoundFiles:
    """Find the files that `paths` name, less those excluded; raises UsageError where nothing is left."""
    found = find(paths, trust=options.trust, strict=options.strict)
    kept = tuple(file for file in found.files if not options.excludes(str(file)))
    if found.files and not kept:
        raise UsageError(f"all {len(found.files)} files are excluded by {', '.join(options.exclude)}")
    return replace(found, files=kept)
