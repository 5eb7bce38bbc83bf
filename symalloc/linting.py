"""Reading and linting put together: what the command line and the Python functions share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from symalloc.errors import UsageError
from symalloc.files import read_source
from symalloc.linter.diagnostic import Diagnostic, Report
from symalloc.linter.fix import Relint, with_fixes
from symalloc.linter.fix_apply import Rewrite, rewrite
from symalloc.linter.run import Linter, Settings, matches_file
from symalloc.program.collector import no_collections
from symalloc.program.model import Origin
from symalloc.prover.domain import INT64_MIN, Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.relax.read.paths import Found, find
from symalloc.relax.read.result import DEFAULT_TIMEOUT, FileResult, InputError, ReadOptions, Stage
from symalloc.relax.workers.pool import Watch, WorkerPool
from symalloc.rulebook.book import load_rules
from symalloc.rulebook.error import RuleError
from symalloc.size.condition import FALSE, Condition
from symalloc.size.parse import SizeSyntaxError, parse_condition

if TYPE_CHECKING:
    from tvm.ir import IRModule

__all__ = ["LintOptions", "LintSession", "parse_assumptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOptions:
    """What to lint with.

    `target` is the TVM target that modules are lowered for, `timeout` the seconds that the reading of one
    file may take.  `exclude` holds glob patterns of files and folders; see `Settings` for the rest.
    """

    assume: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    rules: tuple[Path, ...] = ()
    stage: Stage = "auto"
    trust: bool = False
    strict: bool = False
    target: str = "llvm"
    timeout: float = DEFAULT_TIMEOUT
    exclude: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def parse_assumptions(texts: Iterable[str]) -> tuple[Condition, ...]:
    """The conditions that `texts` write; raises UsageError, which quotes the text that is wrong."""
    parsed = []
    for text in texts:
        try:
            parsed.append(parse_condition(text))
        except SizeSyntaxError as error:
            raise UsageError(f"assumption `{text}`: {error.problem}, at column {error.column + 1}") from None
    return tuple(parsed)


class LintSession:
    """Lints files or modules with one set of options; calls share the prover's memory and the workers.

    Use it in a `with` statement: its worker processes are gone when that is left.
    """

    def __init__(self, options: LintOptions, pool: WorkerPool | None = None) -> None:
        """Raises UsageError for rules, rule names or assumptions that make no sense.

        `pool`: the workers to read files with, left to the caller to close; None for own ones.
        """
        if not options.timeout > 0:
            raise UsageError(f"the timeout is {options.timeout:g} s; it must be more than 0")
        self.options = options
        self.prover = Prover()
        self._pool = pool or WorkerPool()
        try:
            self.settings = Settings(
                rulebook=load_rules(options.rules),
                assume=parse_assumptions(options.assume),
                select=options.select,
                ignore=options.ignore,
                per_file_ignores=options.per_file_ignores,
                strict=options.strict,
                report_unused=options.stage in ("auto", "all"),
            )
            self._linter()
        except RuleError as error:
            raise UsageError(str(error)) from None
        self._refuse_contradiction(Domain(default_lower=INT64_MIN))

    def __enter__(self) -> LintSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    # -- what to lint --------------------------------------------------------------------------------------

    def find(self, paths: Sequence[str]) -> Found:
        """The files that `paths` name, less those excluded; raises UsageError where nothing is left."""
        try:
            found = find(paths)
        except InputError as error:
            raise UsageError(str(error)) from None
        patterns = self.options.exclude
        kept = tuple(f for f in found.files if not any(matches_file(str(f), p) for p in patterns))
        if not kept:
            raise UsageError(_none_left(found, patterns))
        return replace(found, files=kept)

    def lint_files(self, found: Found, progress: Watch | None = None, *, fixes: bool = True) -> Report:
        """The findings in the files `found`; `progress` is told, now and then, what is being done.

        With `fixes` those that help are found, which means to read and lint the changed files again.
        """
        relint = partial(self._relint, watch=progress) if fixes else None
        report = self._lint(self._read(found.files, progress), relint)
        return replace(report, skipped=found.skipped)

    def lint_module(self, module: IRModule, name: str) -> Report:
        """The findings in one module in memory; its script is printed only where there are any to show."""
        with no_collections():
            return self._module(module, name)

    def _module(self, module: IRModule, name: str) -> Report:
        from symalloc.relax.workers.read import read_module

        options = self._read_options()
        linter = self._linter()
        if linter.add(read_module(module, replace(options, locate=False), name=name)):
            linter = self._linter()
            linter.add(read_module(module, options, name=name))
        report = linter.report()
        self._check_assumptions(linter, report)
        return report

    def rewrites(self, report: Report, *, unsafe: bool) -> Iterator[Rewrite]:
        """The files of `report` that fixes change, fixed until nothing more can be; nothing is written."""
        for file in report.files:
            diagnostics = [d for d in report if d.file == file]
            if any(d.fixes for d in diagnostics):
                text = read_source(Path(file)).text
                relint = partial(self._fixed_again, file)
                changed = rewrite(file, text, diagnostics, relint, unsafe=unsafe)
                if changed.after != changed.before:
                    yield changed

    # -- the parts -----------------------------------------------------------------------------------------

    def _lint(self, results: Iterable[FileResult], relint: Relint | None) -> Report:
        """The findings in what was read, with fixes where `relint` tries these."""
        linter = self._linter()
        readings: dict[str, FileResult] = {}
        for reading in results:
            if any(d.span for d in linter.add(reading)):
                readings[reading.file] = reading
        report = linter.report()
        self._check_assumptions(linter, report)
        return with_fixes(report, readings, self.settings, self.prover, relint) if relint else report

    def _linter(self) -> Linter:
        return Linter(self.settings, self.prover)

    def _read_options(self) -> ReadOptions:
        given = self.options
        return ReadOptions(trust=given.trust, stage=given.stage, target=given.target, timeout=given.timeout)

    def _read(self, files: Sequence[Path], watch: Watch | None = None) -> Iterator[FileResult]:
        return self._pool.read(files, self._read_options(), watch)

    def _relint(
        self, changes: Sequence[tuple[str, str]], watch: Watch | None = None
    ) -> list[tuple[Diagnostic, ...]]:
        """The findings in each changed text, taken as the contents of the file that it goes with."""
        with tempfile.TemporaryDirectory(prefix="symalloc-") as folder:
            return [self._linter().add(reading) for reading in self._read_changed(changes, folder, watch)]

    def _fixed_again(self, file: str, text: str) -> Sequence[Diagnostic]:
        """The findings in `text`, taken as the contents of `file`, with fixes."""
        with tempfile.TemporaryDirectory(prefix="symalloc-") as folder:
            return self._lint(self._read_changed([(file, text)], folder), self._relint).diagnostics

    def _read_changed(
        self, changes: Sequence[tuple[str, str]], folder: str, watch: Watch | None = None
    ) -> Iterator[FileResult]:
        """What each changed text gives, read from a copy below `folder`, under the name of its file."""
        copies = [_written(Path(folder) / str(i), file, text) for i, (file, text) in enumerate(changes)]
        for (file, _), reading in zip(changes, self._read(copies, watch), strict=True):
            yield replace(reading, file=file)

    def _check_assumptions(self, linter: Linter, report: Report) -> None:
        """Refuses assumptions about symbols that no function has, and those that no dimension can meet."""
        names = frozenset().union(*(c.symbols for c in self.settings.assume))
        missing = sorted(names - linter.symbols.keys())
        if missing and not report.unread:
            raise UsageError(_unknown_symbol(missing[0], sorted(linter.symbols)))
        scalars = {name for name in names if Origin.SCALAR in linter.symbols.get(name, ())}
        self._refuse_contradiction(Domain(lower=dict.fromkeys(scalars, INT64_MIN)))

    def _refuse_contradiction(self, domain: Domain) -> None:
        assume = self.settings.assume
        if (
            assume
            and self.prover.prove(FALSE, domain.assuming(assume), explain=False).verdict is Verdict.VACUOUS
        ):
            given = ", ".join(f"`{text}`" for text in self.options.assume)
            where = " for dimensions, which are >= 0" if domain.default_lower == 0 else ""
            raise UsageError(
                f"the assumptions contradict each other{where}: {given}; nothing would be verified"
            )


def _none_left(found: Found, exclude: Sequence[str]) -> str:
    if not found.files:
        return "none of the files that match is TVMScript (.py) or JSON (.json, .json.gz)"
    return f"all {len(found.files)} files are excluded by {', '.join(exclude)}"


def _written(folder: Path, file: str, text: str) -> Path:
    """A file in the new `folder` that is named like `file` and holds `text`."""
    folder.mkdir()
    copy = folder / Path(file).name
    copy.write_bytes(text.encode(read_source(Path(file)).encoding))
    return copy


def _unknown_symbol(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    if close:
        hint = f"did you mean `{close[0]}`?"
    else:
        hint = f"there are {', '.join(known[:12])}" if known else "there are none"
    return f"an assumption is about `{name}`, which is a symbol of no linted function; {hint}"
