"""Lint sessions, which the command line, Python and editors share, and the linter as a pass instrument.

Files are read in worker processes, or linted by the workers of an executor, which need no file system in
common.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, as_completed
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Unpack

from symalloc.errors import UsageError, nearest, require_choice
from symalloc.linter.diagnostic import Diagnostic, Fix, Report, Severity
from symalloc.linter.fixes import Rewrite, rewrite, tried_fixes
from symalloc.linter.lint_options import LintKeywords, LintOptions
from symalloc.linter.linter import LintedFile, Linter, report_of
from symalloc.linter.suppressions import Baseline
from symalloc.options import made
from symalloc.program.ir import Origin
from symalloc.program.reading import FileResult, ReadProblem, UnreadableError
from symalloc.program.span import Source
from symalloc.program.types import no_collections
from symalloc.prover.domain import INT64_MIN, Domain, Verdict
from symalloc.relax.read.find_files import STDIN, FoundFiles, kind_of, may_hold_modules
from symalloc.relax.workers.worker_pool import WorkerPool
from symalloc.rulebook.rule import rule_files
from symalloc.session.config import LintCache, installed_versions, sendable
from symalloc.session.files import read_source, source_bytes
from symalloc.size.condition import FALSE

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from symalloc.relax.passes.stages import MemoryFault, Mode

_DASK = "dask://"
_SECONDS = 10  # for Dask's scheduler, and for a first worker
_READ_WITH = {"onnx": "onnx", "pt2": "torch"}  # the package that decides what a kind of file holds
_HERE = threading.local()
_LOG = logging.getLogger("symalloc")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintedText:
    """The findings of `session` in a text that no file need hold, and what was read of it.

    Spans that point into the text bear the name of `reading.source`.
    """

    session: LintSession
    diagnostics: tuple[Diagnostic, ...]
    reading: FileResult
    _tried: dict[int, tuple[Fix, ...]] = field(default_factory=dict)

    def fixes(self, wanted: Iterable[Diagnostic]) -> dict[int, tuple[Fix, ...]]:
        """The fixes that help of the findings that are `wanted`, by `id`; each finding is tried once."""
        asked, source = [id(diagnostic) for diagnostic in wanted], self.reading.source
        untried = set(asked) - self._tried.keys()
        if untried and source is not None:
            found = [d if id(d) in untried else replace(d, candidates=()) for d in self.diagnostics]
            good = tried_fixes([(source, found)], self.session.relint)
            self._tried.update({number: good.get(number, ()) for number in untried})
        return {number: self._tried.get(number, ()) for number in asked}


class LintSession(AbstractContextManager["LintSession"]):
    """Lints files or modules with one set of options; calls share the prover's memory and the workers.

    Use it in a `with` statement: its worker processes are gone when that is left.
    """

    def __init__(
        self,
        options: LintOptions,
        pool: WorkerPool | None = None,
        *,
        cache: LintCache | None = None,
        executor: Executor | None = None,
    ) -> None:
        """Load the rules; raises UsageError for rules, rule names, assumptions or a baseline that make no
        sense.

        `pool`: the workers to read files with, left to the caller to close; None for own ones.  `cache` has
        the findings of files that did not change; the workers of `executor` lint the others.
        """
        self.options, self._cache, self._executor = options, cache, executor
        self.linter = Linter(options)
        self._baseline = Baseline.load(options.baseline) if options.baseline else None
        self._pool = pool or WorkerPool(options.jobs)
        self._refuse_contradiction(Domain(default_lower=INT64_MIN))

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    # -- what to lint --------------------------------------------------------------------------------------

    def lint_files(self, found: FoundFiles, *, fixes: bool = True) -> Report:
        """Lint the files `found`; with `fixes` those that help are found, which means to read and lint the
        changed files again.
        """
        started = perf_counter()
        files = list(dict.fromkeys(found.files))
        linted: dict[Path, LintedFile] = {}
        if self._cache is not None:
            linted = {file: kept for file in files if (kept := self._cache.get(file)) is not None}
        missing = [file for file in files if file not in linted]
        fresh = self._linted(missing, found.standard_input, fixes=fixes)
        if self._cache is not None:
            self._cache.put(fresh)
        linted |= fresh
        ordered = [linted[file] for file in files]
        report = report_of(ordered, seconds=perf_counter() - started, skipped=found.skipped)
        symbols: dict[str, set[Origin]] = {}
        for one in ordered:
            for name, origins in one.symbols.items():
                symbols.setdefault(name, set()).update(origins)
        self._check_assumptions(symbols, report)
        return report

    def lint_bytes(self, file: str, data: bytes, *, fixes: bool) -> LintedFile:
        """Lint `data`, taken as the contents of `file`, which need not exist."""
        path = Path(file)
        (linted,) = self._lint(self._pool.read([path], self.options, contents={path: data}), fixes)
        return linted

    def lint_text(self, file: str, text: str, watch: Callable[[], None] = lambda: None) -> LintedText:
        """Lint `text`, taken as the contents of `file`, which need not exist; no fixes are tried.  `watch` is
        called now and then.

        An assumption about a symbol that the text does not have is no error: it may be meant for other files.
        """
        path = Path(file)
        (reading,) = self._pool.read([path], self.options, watch, {path: source_bytes(text)})
        return LintedText(
            session=self, diagnostics=self.linter.lint(reading).report.diagnostics, reading=reading
        )

    def relint(
        self, changes: Sequence[tuple[str, str]], unsettled: set[str] | None = None
    ) -> list[tuple[Diagnostic, ...]]:
        """Lint each changed text, taken as the contents of its file, in a folder of its own.

        The files whose texts could not be read for want of time or memory are added to `unsettled`.
        """
        contents = {
            Path(str(number), Path(file).name): source_bytes(text)
            for number, (file, text) in enumerate(changes)
        }
        found: list[tuple[Diagnostic, ...]] = []
        readings = self._pool.read(list(contents), self.options, contents=contents)
        for (file, _), reading in zip(changes, readings, strict=True):
            problems = tuple(replace(problem, file=file) for problem in reading.problems)
            if unsettled is not None and any(problem.passing for problem in problems):
                unsettled.add(file)
            same = replace(reading, file=file, problems=problems)
            found.append(self.linter.lint(same).report.diagnostics)
        return found

    @no_collections()  # nor between reading and checking: what was read stays in use
    def lint_module(self, module: object, name: str) -> Report:
        """Lint one model in memory; its script is printed only where there are findings to show."""
        from symalloc.relax.workers.programs import read_module

        linted = self.linter.lint(read_module(module, self.options, name=name)).finished()
        self._check_assumptions(linted.symbols, linted.report)
        return linted.report

    def without_known(self, report: Report) -> Report:
        """Leave out of `report` the findings of the baseline, if there is one."""
        if self._baseline is None:
            return report
        return self._baseline.applied(report, self.linter.checked_rules, may_hold_modules)

    def rewrites(self, report: Report, *, unsafe: bool) -> Iterator[Rewrite]:
        """Fix the files of `report` until nothing more can be fixed; yield what changes, write nothing."""
        for file in report.files:
            diagnostics = [d for d in report if d.file == file]
            if any(d.fixes for d in diagnostics):
                text = read_source(Path(file))
                relint = partial(self._fixed_again, file)
                changed = rewrite(file, text, diagnostics, relint, unsafe=unsafe)
                if changed.after != changed.before:
                    yield changed

    # -- the parts -----------------------------------------------------------------------------------------

    def _linted(
        self, files: Sequence[Path], standard_input: bytes | None, *, fixes: bool
    ) -> dict[Path, LintedFile]:
        """Lint files, each once: on the executor what can be sent there, here the others."""
        contents = {} if standard_input is None else {STDIN: standard_input}
        found: dict[Path, LintedFile] = {}
        if self._executor is not None:
            sent = {file: data for file in files for data in [sendable(file, contents)] if data is not None}
            found = self._on_executor(self._executor, sent, fixes=fixes)
        left = [file for file in files if file not in found]
        if left:
            here = self._lint(self._pool.read(left, self.options, contents=contents), fixes)
            found |= zip(left, here, strict=True)
        return found

    def _on_executor(
        self, executor: Executor, contents: Mapping[Path, bytes], *, fixes: bool
    ) -> dict[Path, LintedFile]:
        """Lint `contents`, each taken as that of a file; raises UsageError where versions differ."""
        setup = Setup.of(self.options, fixes=fixes)
        futures = {
            executor.submit(lint_on_worker, setup, str(file), data): file for file, data in contents.items()
        }
        found: dict[Path, LintedFile] = {}
        try:
            for future in as_completed(futures):
                file = futures[future]
                found[file] = self._answer(file, future)
                _LOG.info("linting %s", file.name, extra={"done": len(found), "total": len(futures)})
        finally:
            for future in futures:
                future.cancel()
        return found

    def _answer(self, file: Path, future: Future[LintedFile]) -> LintedFile:
        """The findings that a worker sent; whatever ended it is a finding in its file."""
        try:
            return future.result()
        except CancelledError:
            raise UsageError(
                "the executor gave up the work: it was shut down, or its cluster is lost"
            ) from None
        except UsageError:
            raise
        except Exception as error:
            what = f"linting it on a worker failed: {type(error).__name__}: {error}"
            problem = ReadProblem(file=str(file), message=what)
            (linted,) = self._lint([FileResult(file=str(file), problems=(problem,))], fixes=False)
            return linted

    def _lint(self, results: Iterable[FileResult], fixes: bool) -> list[LintedFile]:
        """Lint what was read, file by file; with `fixes` try those that there are."""
        linted: list[tuple[str, LintedFile]] = []
        fixable: list[tuple[Source, Sequence[Diagnostic]]] = []
        unsettled: set[str] = set()
        for reading in results:
            one = self.linter.lint(reading)
            linted.append((reading.file, one))
            if reading.source is not None and reading.file != str(STDIN):
                fixable.append((reading.source, one.report.diagnostics))
        relint = partial(self.relint, unsettled=unsettled)
        good = tried_fixes(fixable, relint) if fixes else {}
        return [one.finished(good, settled=file not in unsettled) for file, one in linted]

    def _fixed_again(self, file: str, text: str) -> Sequence[Diagnostic]:
        """Lint `text`, taken as the contents of `file`; offer fixes."""
        return self.lint_bytes(file, source_bytes(text), fixes=True).report.diagnostics

    def _check_assumptions(self, symbols: Mapping[str, Collection[Origin]], report: Report) -> None:
        """Refuse assumptions about symbols that no function has, and those that no dimension can meet."""
        names = frozenset().union(*(c.symbols for c in self.linter.assume))
        missing = sorted(names - symbols.keys())
        if missing and not report.unread:
            known = sorted(symbols)
            close = nearest(missing[0], known)
            hint = f"did you mean `{close}`?" if close else f"there are {', '.join(known[:12]) or 'none'}"
            raise UsageError(
                f"an assumption is about `{missing[0]}`, which is a symbol of no linted function; {hint}"
            )
        scalars = {name for name in names if Origin.SCALAR in symbols.get(name, ())}
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


# -- the workers of an executor -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that a worker needs to lint: the options, the texts of the rules that they name, and the versions
    that the findings depend on.
    """

    options: LintOptions
    rules: tuple[tuple[str, bytes], ...]
    fixes: bool
    versions: Mapping[str, str]

    @classmethod
    def of(cls, options: LintOptions, *, fixes: bool) -> Setup:
        """The setup that lints elsewhere as `options` do here."""
        places = [path for place in options.rules for path in rule_files(place)]
        return cls(
            options=replace(options, rules=(), baseline=None, jobs=1),
            rules=tuple((f"{number}-{path.name}", path.read_bytes()) for number, path in enumerate(places)),
            fixes=fixes,
            versions=installed_versions(),
        )


def lint_on_worker(setup: Setup, file: str, data: bytes) -> LintedFile:
    """Lint `data`, taken as the contents of `file`, in a process of the executor.

    Raises UsageError where it has other versions of what counts for the file than the process that asks.
    """
    unread = set(_READ_WITH.values())
    with suppress(UnreadableError):
        unread.discard(_READ_WITH.get(kind_of(Path(file), data), ""))
    wanted, found = setup.versions, installed_versions()
    others = [name for name in found if name not in unread and wanted[name] != found[name]]
    if others:
        has, needs = (" and ".join(f"{name} {of[name]}" for name in others) for of in (found, wanted))
        raise UsageError(f"a worker has {has}, and this process {needs}: findings could differ")
    return _session(setup).lint_bytes(file, data, fixes=setup.fixes)


def _session(setup: Setup) -> LintSession:
    """The session of this thread: it keeps its worker process, and what was proved, for the next file."""
    if getattr(_HERE, "setup", None) != setup:
        if hasattr(_HERE, "session"):
            _HERE.session.__exit__()
        with tempfile.TemporaryDirectory(prefix="symalloc-") as folder:
            for name, text in setup.rules:
                (Path(folder) / name).write_bytes(text)
            rules = (Path(folder),) if setup.rules else ()
            _HERE.session = LintSession(replace(setup.options, rules=rules))
        _HERE.setup = setup
    session: LintSession = _HERE.session
    return session


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """The executor of the Dask cluster at `address`, `dask://HOST:PORT`.

    Raises UsageError where Dask is missing, nothing answers, or there is no worker.
    """
    if not address.startswith(_DASK):
        raise UsageError(f"--scheduler {address}: expected {_DASK}HOST:PORT")
    try:
        from distributed import Client
    except ImportError:
        raise UsageError(f"--scheduler {address} needs Dask: pip install 'symalloc[dask]'") from None
    try:
        client = Client(f"tcp://{address.removeprefix(_DASK)}", timeout=_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"no Dask scheduler answers at {address}: {error}") from None
    try:
        with suppress(TimeoutError):
            client.wait_for_workers(1, timeout=_SECONDS)
        if not client.scheduler_info()["workers"]:
            raise UsageError(f"the Dask cluster at {address} has no workers")
        yield client.get_executor(pure=False, retries=1)
    finally:
        with suppress(Exception):  # the scheduler may be gone
            client.close(timeout=_SECONDS)


# -- the linter as a pass instrument ------------------------------------------------------------------------


def VerifyMemory(  # noqa: N802 - TVM's instruments are classes, and this is called like one
    *, mode: Mode = "raise", **options: Unpack[LintKeywords]
) -> Any:
    """A pass instrument that lints the module after every pass and stops at the pass that brings an error in.

        with tvm.transform.PassContext(instruments=[symalloc.VerifyMemory()]):
            relax.build(mod, target="llvm")

    `options` are those of `symalloc.lint`; those of reading files have no effect.  A warning that a pass
    brings in becomes a VerificationWarning that names the pass; notes are passed over.  With mode "warn"
    the build goes on after errors too.  Raises UsageError for arguments that make no sense; while passes run,
    VerificationError.
    """
    from symalloc.relax.passes.stages import make_instrument

    require_choice("mode", mode, ("raise", "warn"))
    chosen = replace(made(LintOptions, options, LintKeywords), stage="as-is")
    faults = partial(_faults, Linter(chosen))
    return make_instrument(faults, mode)


def _faults(linter: Linter, module: IRModule, stage: str) -> Sequence[MemoryFault]:
    """The errors and warnings in a module as it stands; the prover's memory lasts over all passes."""
    from symalloc.relax.passes.stages import MemoryFault
    from symalloc.relax.workers.programs import read_module
    from symalloc.report.text import text_of

    report = linter.lint(read_module(module, linter.options, name=stage)).report
    return [
        MemoryFault(
            rule=d.rule,
            function=d.function,
            text=text_of(d, report).plain,
            error=d.severity is Severity.ERROR,
        )
        for d in report
        if d.severity is not Severity.NOTE
    ]
