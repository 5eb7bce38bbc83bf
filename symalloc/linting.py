"""Lint sessions, which the command line and Python share, and the linter as a pass instrument."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symalloc.errors import UsageError, nearest
from symalloc.files import read_source, source_bytes
from symalloc.linter.baseline import Baseline
from symalloc.linter.diagnostic import Diagnostic, Fix, Report, Severity
from symalloc.linter.fixes import Relint, tried_fixes
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import Linter
from symalloc.linter.rewriting import Rewrite, rewrite
from symalloc.program.collector import no_collections
from symalloc.program.ir import Origin
from symalloc.program.reading import FileResult
from symalloc.program.span import Source
from symalloc.prover.domain import INT64_MIN, Domain
from symalloc.prover.verdict import Verdict
from symalloc.relax.read.find_files import FoundFiles, find
from symalloc.relax.read.model_file import STDIN
from symalloc.relax.workers.worker_pool import Watch, WorkerPool
from symalloc.size.condition import FALSE

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from symalloc.relax.passes.verify_pass import MemoryFault, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class LintedText:
    """The findings in a text that no file need hold, what was read of it, and the report.

    Spans that point into the text bear the name of `reading.source`.
    """

    diagnostics: tuple[Diagnostic, ...]
    reading: FileResult
    report: Report


class LintSession:
    """Lints files or modules with one set of options; calls share the prover's memory and the workers.

    Use it in a `with` statement: its worker processes are gone when that is left.
    """

    def __init__(self, options: LintOptions, pool: WorkerPool | None = None) -> None:
        """Load the rules; raises UsageError for rules, rule names, assumptions or a baseline that make no
        sense.

        `pool`: the workers to read files with, left to the caller to close; None for own ones.
        """
        self.options = options
        self.linter = Linter(options)
        self._baseline = Baseline.load(options.baseline) if options.baseline else None
        self._pool = pool or WorkerPool(options.jobs)
        self._refuse_contradiction(Domain(default_lower=INT64_MIN))

    def __enter__(self) -> LintSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    # -- what to lint --------------------------------------------------------------------------------------

    def find(self, paths: Sequence[str]) -> FoundFiles:
        """Find the files that `paths` name, less those excluded; raises UsageError where nothing is left."""
        found = find(paths, trust=self.options.trust, strict=self.options.strict)
        kept = tuple(file for file in found.files if not self.options.excludes(str(file)))
        if found.files and not kept:
            raise UsageError(
                f"all {len(found.files)} files are excluded by {', '.join(self.options.exclude)}"
            )
        return replace(found, files=kept)

    def lint_files(self, found: FoundFiles, progress: Watch | None = None, *, fixes: bool = True) -> Report:
        """Lint the files `found`; `progress` is told, now and then, what is being done.

        With `fixes` those that help are found, which means to read and lint the changed files again.
        """
        relint = partial(self._relint, watch=progress) if fixes else None
        report = self._lint(self._read(found.files, progress, found.standard_input), relint)
        return replace(report, skipped=found.skipped)

    def lint_text(self, file: str, text: str, watch: Watch | None = None) -> LintedText:
        """Lint `text`, taken as the contents of `file`, which need not exist; no fixes are tried.

        An assumption about a symbol that the text does not have is no error: it may be meant for other files.
        """
        with tempfile.TemporaryDirectory(prefix="symalloc-") as folder:
            (reading,) = self._read_changed([(file, text)], folder, watch)
        linter = self.linter.fresh()
        return LintedText(diagnostics=linter.add(reading), reading=reading, report=linter.report())

    def fixes_in(self, linted: LintedText, wanted: Iterable[Diagnostic]) -> dict[int, tuple[Fix, ...]]:
        """The fixes that help of those findings in `linted` that are `wanted`, by `id` of the diagnostic."""
        source = linted.reading.source
        if source is None:
            return {}
        chosen = {id(diagnostic) for diagnostic in wanted}
        found = [d if id(d) in chosen else replace(d, candidates=()) for d in linted.diagnostics]
        return tried_fixes([(source, found)], self._relint)

    def lint_module(self, module: object, name: str) -> Report:
        """Lint one model in memory; its script is printed only where there are findings to show."""
        from symalloc.relax.workers.programs import read_module

        with no_collections():
            linter = self.linter.fresh()
            linter.add(read_module(module, self.options, name=name))
            report = linter.report()
            self._check_assumptions(linter, report)
            return report

    def without_known(self, report: Report) -> Report:
        """Leave out of `report` the findings of the baseline, if there is one."""
        return self._baseline.applied(report, self.linter.checked_rules) if self._baseline else report

    def rewrites(self, report: Report, *, unsafe: bool) -> Iterator[Rewrite]:
        """Fix the files of `report` until nothing more can be fixed; yield what changes, write nothing."""
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
        """Lint what was read; offer fixes where `relint` tries them."""
        linter = self.linter.fresh()
        fixable: list[tuple[Source, Sequence[Diagnostic]]] = []
        for reading in results:
            found = linter.add(reading)
            is_file = reading.file != str(STDIN)
            if is_file and reading.source is not None and any(d.candidates for d in found):
                fixable.append((reading.source, found))
        report = linter.report()
        self._check_assumptions(linter, report)
        return linter.report(tried_fixes(fixable, relint)) if relint else report

    def _read(
        self, files: Sequence[Path], watch: Watch | None = None, standard_input: bytes | None = None
    ) -> Iterator[FileResult]:
        return self._pool.read(files, self.options, watch, standard_input)

    def _relint(
        self, changes: Sequence[tuple[str, str]], watch: Watch | None = None
    ) -> list[tuple[Diagnostic, ...]]:
        """Lint each changed text, taken as the contents of the file that it goes with."""
        with tempfile.TemporaryDirectory(prefix="symalloc-") as folder:
            return [
                self.linter.fresh().add(reading) for reading in self._read_changed(changes, folder, watch)
            ]

    def _fixed_again(self, file: str, text: str) -> Sequence[Diagnostic]:
        """Lint `text`, taken as the contents of `file`; offer fixes."""
        with tempfile.TemporaryDirectory(prefix="symalloc-") as folder:
            return self._lint(self._read_changed([(file, text)], folder), self._relint).diagnostics

    def _read_changed(
        self, changes: Sequence[tuple[str, str]], folder: str, watch: Watch | None = None
    ) -> Iterator[FileResult]:
        """Read each changed text from a copy below `folder`, under the name of its file."""
        copies = [_written(Path(folder) / str(i), file, text) for i, (file, text) in enumerate(changes)]
        for (file, _), reading in zip(changes, self._read(copies, watch), strict=True):
            problems = tuple(replace(problem, file=file) for problem in reading.problems)
            yield replace(reading, file=file, problems=problems)

    def _check_assumptions(self, linter: Linter, report: Report) -> None:
        """Refuse assumptions about symbols that no function has, and those that no dimension can meet."""
        names = frozenset().union(*(c.symbols for c in self.linter.assume))
        missing = sorted(names - linter.symbols.keys())
        if missing and not report.unread:
            raise UsageError(_unknown_symbol(missing[0], sorted(linter.symbols)))
        scalars = {name for name in names if Origin.SCALAR in linter.symbols.get(name, ())}
        self._refuse_contradiction(Domain(lower=dict.fromkeys(scalars, INT64_MIN)))

    def _refuse_contradiction(self, domain: Domain) -> None:
        assume, prover = self.linter.assume, self.linter.prover
        given_domain = domain.assuming(assume)
        if assume and prover.prove(FALSE, given_domain, explain=False).verdict is Verdict.VACUOUS:
            given = ", ".join(f"`{text}`" for text in self.options.assume)
            where = " for dimensions, which are >= 0" if domain.default_lower == 0 else ""
            raise UsageError(
                f"the assumptions contradict each other{where}: {given}; nothing would be verified"
            )


def VerifyMemory(  # noqa: N802 - TVM's instruments are classes, and this is called like one
    *,
    mode: Mode = "raise",
    assume: Sequence[str] = (),
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Any:
    """A pass instrument that lints the module after every pass and stops at the pass that brings an error in.

        with tvm.transform.PassContext(instruments=[symalloc.VerifyMemory()]):
            relax.build(mod, target="llvm")

    `assume`, `select` and `ignore` are those of `symalloc.lint`.  A warning that a pass brings in becomes a
    VerificationWarning that names the pass; notes are passed over.  With mode "warn" the build goes on after
    errors too.  Raises UsageError for arguments that make no sense; while passes run, VerificationError.
    """
    from symalloc.relax.passes.verify_pass import make_instrument

    if mode not in ("raise", "warn"):
        raise UsageError(f"mode is {mode!r}; it must be 'raise' or 'warn'")
    options = LintOptions(assume=tuple(assume), select=tuple(select), ignore=tuple(ignore), stage="as-is")
    faults = partial(_faults, Linter(options))
    return make_instrument(faults, mode)


def _faults(linter: Linter, module: IRModule, stage: str) -> Sequence[MemoryFault]:
    """The errors and warnings in a module as it stands; the prover's memory lasts over all passes."""
    from symalloc.relax.passes.verify_pass import MemoryFault
    from symalloc.relax.workers.programs import read_module
    from symalloc.report.text import text_of

    linter = linter.fresh()
    found = linter.add(read_module(module, linter.options, name=stage))
    report = linter.report()
    return [
        MemoryFault(
            rule=d.rule,
            function=d.function,
            text=text_of(d, report).plain,
            error=d.severity is Severity.ERROR,
        )
        for d in found
        if d.severity is not Severity.NOTE
    ]


def _written(folder: Path, file: str, text: str) -> Path:
    """Write `text` to a file in the new `folder` that is named like `file`."""
    folder.mkdir()
    copy = folder / Path(file).name
    copy.write_bytes(source_bytes(text))
    return copy


def _unknown_symbol(name: str, known: Sequence[str]) -> str:
    close = nearest(name, known)
    if close:
        hint = f"did you mean `{close}`?"
    else:
        hint = f"there are {', '.join(known[:12])}" if known else "there are none"
    return f"an assumption is about `{name}`, which is a symbol of no linted function; {hint}"
