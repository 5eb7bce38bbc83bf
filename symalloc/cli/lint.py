"""`symalloc lint`: verify files, show the findings, fix what can be fixed."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from symalloc.cli.click_options import from_table, given_as, written
from symalloc.cli.output import (
    colour_wanted,
    is_quiet,
    keep_apart,
    progress,
    remark,
    show,
    terminal_width,
    wrote,
)
from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.options import FLAG, PATH, TEXT, choice, option
from symalloc.relax.read.find_files import STDIN_ARGUMENT, FoundFiles
from symalloc.relax.workers.worker_pool import WorkerPool
from symalloc.report.formats import FORMATS, render
from symalloc.session.config import LintCache, default_folder, find_config, found_files, load_config
from symalloc.session.files import write_source
from symalloc.shown import counted

if TYPE_CHECKING:
    from symalloc.linter.diagnostic import Report
    from symalloc.session.linting import LintSession

WITHOUT_FIXES = ("concise", "github")
EPILOG = """\
Exit status: 0 for no findings (notes count only with --strict), 1 for errors or warnings, 2 for wrong
usage or for a file that could not be read.  Such a file gets a finding SYM902, and the other files are still
linted.  With --write-baseline findings do not count.

Settings come from [tool.symalloc] in the nearest pyproject.toml above the first path.  The command line
overrides them.  The comment `# symalloc: allow(SYM101) -- reason` silences a finding in the source.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LintRun:
    """The options of the command line alone: how findings are shown, kept and fixed."""

    format: str = option("text", choice(FORMATS), "How to show findings.")
    output: Path | None = option(
        None, written(), "Write to this file; leave it as it is after an error.", short=("-o",)
    )
    fix: bool = option(False, FLAG, "Apply the safe fixes to the files.")
    unsafe_fixes: bool = option(False, FLAG, "With --fix or --diff: include fixes that may change behaviour.")
    diff: bool = option(False, FLAG, "Show the changes that --fix would make; write nothing.")
    exit_zero: bool = option(
        False, FLAG, "Exit with 0 despite findings (still 2 for input that cannot be read)."
    )
    write_baseline: Path | None = option(None, written(), "Write the findings to this file, for --baseline.")
    statistics: bool = option(
        False, FLAG, "Count findings by rule, and constraints by the layer of the prover that decided them."
    )
    cache_folder: Path | None
    no_cache: bool = option(False, FLAG, "Lint files that did not change, too; keep nothing.")
    scheduler: str | None = option(
        None, TEXT, "Have the workers of a Dask cluster lint the files.", metavar="dask://HOST:PORT"
    )
    config: Path | None = option(None, PATH, "Read [tool.symalloc] from this file.")
    no_config: bool = option(False, FLAG, "Read no pyproject.toml.")

    @property
    def needs_fixes(self) -> bool:
        """True where fixes are shown or made; to find them takes time."""
        return self.fix or self.diff or self.format not in WITHOUT_FIXES

    def require_sense(self, paths: tuple[str, ...], baseline: Path | None) -> None:
        """Raise an error for options that exclude each other."""
        changes = self.fix or self.diff
        excluded = {
            "--config and --no-config exclude each other": self.config and self.no_config,
            "--unsafe-fixes goes with --fix or --diff": self.unsafe_fixes and not changes,
            "--fix and --diff need files; `-` is standard input": changes and STDIN_ARGUMENT in paths,
            "--write-baseline goes without --baseline and --diff": self.write_baseline
            and (baseline or self.diff),
            "--cache and --no-cache exclude each other": self.cache_folder and self.no_cache,
        }
        for text in (text for text, holds in excluded.items() if holds):
            raise click.UsageError(text)


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, type=click.Path())
@from_table(_LintRun, "format", "output")
@from_table(LintOptions, "select", "ignore", "rules", "assume", "stage", "pipeline", "trust", "target")
@from_table(LintOptions, "timeout", "jobs", "budget", "order")
@from_table(_LintRun, "fix", "unsafe_fixes", "diff")
@from_table(LintOptions, "strict")
@from_table(_LintRun, "exit_zero")
@from_table(LintOptions, "baseline")
@from_table(_LintRun, "write_baseline", "statistics")
@given_as(
    "--cache",
    "cache_folder",
    kind=PATH,
    help="Keep findings in this folder for the next run, in place of ~/.cache/symalloc.",
)
@from_table(_LintRun, "no_cache", "scheduler", "config", "no_config")
def lint_command(paths: tuple[str, ...], **given: Any) -> int:
    """Verify the memory of Relax modules.

    PATHS are directories, glob patterns, or models: TVMScript (.py), JSON of TVM (.json, .json.gz), ONNX
    (.onnx), torch.export (.pt2), FILE.py:FUNCTION (with --trust), or - for standard input.
    """
    if not paths:
        raise click.UsageError("nothing to lint; give files or directories, such as `symalloc lint model.py`")
    run = _LintRun(**{field.name: given.pop(field.name) for field in fields(_LintRun)})
    run.require_sense(paths, given["baseline"])
    file = run.config or (None if run.no_config else find_config(paths))
    options = (load_config(file) if file else LintOptions()).overlaid(**given)
    if run.write_baseline:
        options = replace(options, baseline=None)
    found = found_files(options, paths)
    needed = (*found.files, file, options.baseline)
    keep_apart("-o", run.output, (*needed, run.write_baseline))
    keep_apart("--write-baseline", run.write_baseline, needed)
    folder = run.cache_folder or (default_folder() if options.cache and not run.no_cache else None)
    cache = None if folder is None else LintCache(folder, options, fixes=run.needs_fixes)
    with ExitStack() as stack:
        pool = stack.enter_context(WorkerPool(options.jobs))
        if run.scheduler is None and not (cache and all(map(cache.has, found.files))):
            pool.start()  # it imports TVM while rules are loaded here
        from symalloc.session.linting import LintSession, dask_executor

        executor = stack.enter_context(dask_executor(run.scheduler)) if run.scheduler else None
        return _lint(LintSession(options, pool, cache=cache, executor=executor), found, run)


def _lint(session: LintSession, found: FoundFiles, run: _LintRun) -> int:
    with progress("linting"):
        report = session.lint_files(found, fixes=run.needs_fixes)
    if run.diff:
        return _diff(session, report, run)
    if run.fix:
        report = _apply(session, report, found, run)
    report = session.without_known(report)
    _show(session, report, run)
    if run.write_baseline:
        from symalloc.linter.suppressions import Baseline

        baseline = Baseline.of(report, run.write_baseline)
        show(baseline.text(), run.write_baseline)
        wrote(run.write_baseline, counted(len(baseline.known), "known finding"))
    return _status(session, report, run)


def _diff(session: LintSession, report: Report, run: _LintRun) -> int:
    changes = "".join(r.diff() for r in session.rewrites(report, unsafe=run.unsafe_fixes))
    show(changes, run.output)
    if not changes:
        remark("nothing to fix")
    return _status(session, session.without_known(report), run)


def _apply(session: LintSession, report: Report, found: FoundFiles, run: _LintRun) -> Report:
    """Write the fixes; return the findings that are left."""
    rewrites = list(session.rewrites(report, unsafe=run.unsafe_fixes))
    for change in rewrites:
        try:
            write_source(Path(change.file), change.after)
        except (OSError, UnicodeEncodeError) as error:
            raise UsageError(f"cannot write {change.file}: {error}") from None
    if not rewrites:
        return report
    fixed = counted(sum(change.fixes for change in rewrites), "finding")
    remark(f"fixed {fixed} in {len(rewrites)} file(s)")
    return session.lint_files(found)


def _show(session: LintSession, report: Report, run: _LintRun) -> None:
    text = render(
        report,
        run.format,
        rules=session.linter.rulebook.rules,
        width=terminal_width(sys.stdout) if run.output is None else None,
        colour=run.output is None and colour_wanted(sys.stdout),
        quiet=is_quiet(),
        statistics=run.statistics,
    )
    show(text, run.output)
    if run.output is not None:
        wrote(run.output, counted(len(report), "finding"))


def _status(session: LintSession, report: Report, run: _LintRun) -> int:
    if report.unread:
        return 2
    found = len(report) > 0 if session.options.strict else not report.ok
    return int(found and not (run.exit_zero or run.write_baseline))
