"""`symalloc lint`: verify files, show the findings, fix what can be fixed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from symalloc.cli.click_options import PathName, Word, file_option, from_table
from symalloc.cli.output import colour_wanted, keep_apart, show, terminal_width, wrote
from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.options import choice
from symalloc.relax.read.find_files import STDIN_ARGUMENT, FoundFiles
from symalloc.relax.workers.worker_pool import Watch, WorkerPool
from symalloc.report.formats import FORMATS, render
from symalloc.session.config import find_config, found_files, load_config
from symalloc.session.files import read_source
from symalloc.session.lint_cache import LintCache, default_folder
from symalloc.shown import counted

PATIENCE = 1.0  # seconds before a bar appears


@contextmanager
def progress(title: str, *, shown: bool) -> Iterator[Watch]:
    """A bar on a terminal, after a moment: `with progress("linting", shown=True) as step: step(1, 3, "")`."""
    if not shown or sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total, what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    what = TextColumn("{task.fields[what]}", markup=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), what)
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task, started = bar.add_task(title, what=""), monotonic()

    def step(done: int, total: int, what: str) -> None:
        if monotonic() - started > PATIENCE:
            bar.start()
        bar.update(task, completed=done, total=total, what=what)

    try:
        yield step
    finally:
        bar.stop()


if TYPE_CHECKING:
    from symalloc.linter.diagnostic import Report
    from symalloc.linter.fixes import Rewrite
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
class _Output:
    """Options of showing findings and of applying fixes."""

    form: str
    output: Path | None
    colour: str
    quiet: bool
    statistics: bool
    apply_fixes: bool
    unsafe_fixes: bool
    diff: bool
    exit_zero: bool
    write_baseline: Path | None

    @property
    def needs_fixes(self) -> bool:
        """True where fixes are shown or made; to find them takes time."""
        return self.apply_fixes or self.diff or self.form not in WITHOUT_FIXES


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1)
@click.option("--format", "form", type=Word(choice(FORMATS)), default="text", help="How to show findings.")
@file_option("-o", "--output", help="Write to this file; leave it as it is after an error.")
@from_table(LintOptions, "select", "ignore", "rules", "assume", "stage", "pipeline", "trust", "target")
@from_table(LintOptions, "timeout", "jobs", "budget")
@click.option("--fix", "apply_fixes", is_flag=True, help="Apply the safe fixes to the files.")
@click.option(
    "--unsafe-fixes", is_flag=True, help="With --fix or --diff: include fixes that may change behaviour."
)
@click.option("--diff", is_flag=True, help="Show the changes that --fix would make; write nothing.")
@from_table(LintOptions, "strict")
@click.option(
    "--exit-zero", is_flag=True, help="Exit with 0 despite findings (still 2 for input that cannot be read)."
)
@from_table(LintOptions, "baseline")
@file_option("--write-baseline", metavar="FILE", help="Write the findings to this file, for --baseline.")
@click.option(
    "--color",
    "colour",
    type=Word(choice(("auto", "always", "never"))),
    default="auto",
    help="When to use colours.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print no summary line and no progress bar.")
@click.option(
    "--statistics",
    is_flag=True,
    help="Count findings by rule, and constraints by the layer of the prover that decided them.",
)
@click.option(
    "--cache",
    "cache_folder",
    type=PathName(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep findings in this folder for the next run, in place of ~/.cache/symalloc.",
)
@click.option("--no-cache", is_flag=True, help="Lint files that did not change, too; keep nothing.")
@click.option(
    "--scheduler", metavar="dask://HOST:PORT", help="Have the workers of a Dask cluster lint the files."
)
@click.option(
    "--config", type=PathName(dir_okay=False, path_type=Path), help="Read [tool.symalloc] from this file."
)
@click.option("--no-config", is_flag=True, help="Read no pyproject.toml.")
def lint_command(
    paths: tuple[str, ...],
    config: Path | None,
    no_config: bool,
    cache_folder: Path | None,
    no_cache: bool,
    scheduler: str | None,
    **given: Any,
) -> int:
    """Verify the memory of Relax modules.

    PATHS are directories, glob patterns, or models: TVMScript (.py), JSON of TVM (.json, .json.gz), ONNX
    (.onnx), torch.export (.pt2), FILE.py:FUNCTION (with --trust), or - for standard input.
    """
    if not paths:
        raise click.UsageError("nothing to lint; give files or directories, such as `symalloc lint model.py`")
    if config and no_config:
        raise click.UsageError("--config and --no-config exclude each other")
    shown = _Output(**{field.name: given.pop(field.name) for field in fields(_Output)})
    if shown.unsafe_fixes and not (shown.apply_fixes or shown.diff):
        raise click.UsageError("--unsafe-fixes goes with --fix or --diff")
    if (shown.apply_fixes or shown.diff) and STDIN_ARGUMENT in paths:
        raise click.UsageError("--fix and --diff need files; `-` is standard input")
    if shown.write_baseline and (given["baseline"] or shown.diff):
        raise click.UsageError("--write-baseline goes without --baseline and --diff")
    file = config or (None if no_config else find_config(paths))
    options = (load_config(file) if file else LintOptions()).overlaid(**given)
    if shown.write_baseline:
        options = replace(options, baseline=None)
    if cache_folder and no_cache:
        raise click.UsageError("--cache and --no-cache exclude each other")
    found = found_files(options, paths)
    needed = (*found.files, file, options.baseline)
    keep_apart("-o", shown.output, (*needed, shown.write_baseline))
    keep_apart("--write-baseline", shown.write_baseline, needed)
    cache = None if no_cache else _cache(cache_folder, options, shown)
    with ExitStack() as stack:
        pool = stack.enter_context(WorkerPool(options.jobs))
        if scheduler is None and not (cache and all(map(cache.has, found.files))):
            pool.start()  # it imports TVM while rules are loaded here
        from symalloc.session.linting import LintSession, dask_executor

        executor = stack.enter_context(dask_executor(scheduler)) if scheduler is not None else None
        session = LintSession(options, pool, cache=cache, executor=executor)
        return _lint(session, found, shown)


def _cache(folder: Path | None, options: LintOptions, output: _Output) -> LintCache | None:
    """The cache in the folder that was given, or in the user's own; None where neither is wanted."""
    place = folder or (default_folder() if options.cache else None)
    return None if place is None else LintCache(place, options, fixes=output.needs_fixes)


def _lint(session: LintSession, found: FoundFiles, output: _Output) -> int:
    with progress("linting", shown=not output.quiet) as step:
        report = session.lint_files(found, step, fixes=output.needs_fixes)
    if output.diff:
        return _diff(session, report, output)
    if output.apply_fixes:
        report = _apply(session, report, found, output)
    report = session.without_known(report)
    _show(session, report, output)
    if output.write_baseline:
        _write_baseline(report, output.write_baseline)
    return _status(session, report, output)


def _diff(session: LintSession, report: Report, output: _Output) -> int:
    changes = "".join(r.diff() for r in session.rewrites(report, unsafe=output.unsafe_fixes))
    show(changes, output.output)
    if not changes:
        click.echo("nothing to fix", err=True)
    return _status(session, session.without_known(report), output)


def _apply(session: LintSession, report: Report, found: FoundFiles, output: _Output) -> Report:
    """Write the fixes; return the findings that are left."""
    rewrites = list(session.rewrites(report, unsafe=output.unsafe_fixes))
    for change in rewrites:
        _write(change)
    if not rewrites:
        return report
    if not output.quiet:
        fixed = counted(sum(change.fixes for change in rewrites), "finding")
        click.echo(f"fixed {fixed} in {len(rewrites)} file(s)", err=True)
    return session.lint_files(found)


def _write(change: Rewrite) -> None:
    try:
        read_source(Path(change.file)).write(change.after)
    except (OSError, UnicodeEncodeError) as error:
        raise UsageError(f"cannot write {change.file}: {error}") from None


def _write_baseline(report: Report, file: Path) -> None:
    from symalloc.linter.baseline import Baseline

    baseline = Baseline.of(report, file)
    show(baseline.text(), file)
    wrote(file, counted(len(baseline.known), "known finding"))


def _show(session: LintSession, report: Report, output: _Output) -> None:
    text = render(
        report,
        output.form,
        rules=session.linter.rulebook.rules,
        width=terminal_width(sys.stdout) if output.output is None else None,
        colour=output.output is None and colour_wanted(output.colour, sys.stdout),
        quiet=output.quiet,
        statistics=output.statistics,
    )
    show(text, output.output)
    if output.output is not None and not output.quiet:
        wrote(output.output, counted(len(report), "finding"))


def _status(session: LintSession, report: Report, output: _Output) -> int:
    if report.unread:
        return 2
    found = len(report) > 0 if session.options.strict else not report.ok
    return int(found and not (output.exit_zero or output.write_baseline))
