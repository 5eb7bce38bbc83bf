"""The files of a lint run; loads nothing that lints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.relax.read.find_files import FoundFiles, find


def found_files(options: LintOptions, paths: Sequence[str]) -> FoundFiles:
    """Find the files that `paths` name, less those excluded; raises UsageError where nothing is left."""
    found = find(paths, trust=options.trust, strict=options.strict)
    kept = tuple(file for file in found.files if not options.excludes(str(file)))
    if found.files and not kept:
        raise UsageError(f"all {len(found.files)} files are excluded by {', '.join(options.exclude)}")
    return replace(found, files=kept)
