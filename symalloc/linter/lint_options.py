"""The options of a lint run: one record, which Python, pyproject.toml and the command line fill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path, PurePath
from typing import Any, get_args

from symalloc.arguments import require_choice, require_flag, require_seconds, require_whole, shown
from symalloc.errors import UsageError, meant
from symalloc.program.reading import STAGES, PipelineName, ReadOptions, is_stage
from symalloc.size.condition import Condition
from symalloc.size.parse import SizeSyntaxError, as_condition, is_sympy, parse_condition


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOptions(ReadOptions):
    """Options of reading and of checking.

    `assume` holds conditions on symbols ("n <= 2048").  `select` and `ignore` are rule ids, beginnings of
    ids, or names; `per_file_ignores` maps glob patterns on file names to such.  `rules` are folders or files
    of further rules.  `exclude` holds glob patterns of files and folders.  `strict`: what could not be
    decided or understood is an error.  `baseline` is a file with known findings, which are left out.
    `jobs`: the most files that are read at once, None for one per CPU.  `budget`: the most bytes that
    a call of a function may hold at once, None where that is not asked.  `cache`: whether findings
    are kept from one run of the command line to the next.

    Raises UsageError for a stage that does not exist, and for a timeout, jobs or a budget that are not
    positive.
    """

    assume: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    rules: tuple[Path, ...] = ()
    strict: bool = False
    exclude: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    baseline: Path | None = None
    jobs: int | None = None
    budget: int | None = None
    cache: bool = True

    def __post_init__(self) -> None:
        if not is_stage(self.stage):
            stages = ", ".join(STAGES)
            raise UsageError(
                f"unknown stage {shown(self.stage)}; it must be one of {stages}, or the name of a pass"
                f"{meant(self.stage, STAGES)}"
            )
        require_choice("pipeline", self.pipeline, get_args(PipelineName))
        for name in ("trust", "strict"):
            require_flag(name, getattr(self, name))
        require_seconds("timeout", self.timeout)
        if self.jobs is not None:
            require_whole("jobs", self.jobs, 1)
        if self.budget is not None:
            require_whole("budget", self.budget, 1)

    @property
    def reports_unused(self) -> bool:
        """True where a suppression without effect is a finding: a run over some stages only cannot tell."""
        return self.stage in ("auto", "all")

    def excludes(self, file: str) -> bool:
        """True where `file` is not to be linted."""
        return any(matches_file(file, pattern) for pattern in self.exclude)

    def overlaid(self, **given: Any) -> LintOptions:
        """These options with a caller's laid over them.

        `select`, `stage`, `baseline`, `jobs`, `budget` replace where they are given, `ignore`, `assume` and
        `rules` add; all else replaces.
        """
        for name in ("ignore", "assume", "rules"):
            given[name] = (*getattr(self, name), *given.get(name, ()))
        for name in ("select", "stage", "baseline", "jobs", "budget"):
            given[name] = given.get(name) or getattr(self, name)
        return replace(self, **given)


def assumption_texts(assume: object) -> tuple[str, ...]:
    """The conditions that a caller gives as `assume`, as texts: one or several, texts or sympy's.

    Raises UsageError.
    """
    given = (assume,) if isinstance(assume, str | Condition) or is_sympy(assume) else assume
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise UsageError(f"assume is {shown(given)}; it must be a condition or a list of conditions")
    try:
        return tuple(one if isinstance(one, str) else str(as_condition(one)) for one in given)
    except ValueError as error:
        raise UsageError(str(error)) from None


def parse_assumptions(texts: Iterable[str]) -> tuple[Condition, ...]:
    """Parse conditions on symbols; raises UsageError, which quotes the text that is wrong."""
    parsed = []
    for text in texts:
        try:
            parsed.append(parse_condition(text))
        except SizeSyntaxError as error:
            raise UsageError(f"assumption `{text}`: {error.problem}, at column {error.column + 1}") from None
    return tuple(parsed)


def matches_file(file: str, pattern: str) -> bool:
    """True where `file`, or its name, or a folder it lies in, matches the glob `pattern`."""
    path = PurePath(file)
    candidates = (path.as_posix(), path.name, *(parent.as_posix() for parent in path.parents))
    return any(fnmatch(candidate, pattern.rstrip("/")) for candidate in candidates)
