"""The language server: it checks texts when they change, and answers for those that are open."""

from __future__ import annotations

import asyncio
import io
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from symalloc.editor.hovers import hover_text
from symalloc.errors import SymallocError, UsageError, shown
from symalloc.linter.diagnostic import Diagnostic, Fix, Severity, parse_user_script
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.suppressions import UNUSED_SUPPRESSION, allow_finding, enclosing_definition
from symalloc.options import BINDING, SECONDS, option, read_fields, read_table, whole
from symalloc.program.reading import UnreadableError
from symalloc.program.span import Span, split_lines
from symalloc.relax.read.find_files import text_may_hold_modules
from symalloc.relax.read.script_file import parse_text
from symalloc.relax.workers.worker_pool import WorkerPool
from symalloc.report.formats import body_of
from symalloc.session.config import find_config, load_config
from symalloc.session.linting import LintedText, LintSession


class EndableInput(io.RawIOBase):
    """The bytes of the descriptor `source`, until it ends or `end` is called."""

    def __init__(self, source: int) -> None:
        super().__init__()
        self._source = source
        self._wake, self._waker = os.pipe()

    def readable(self) -> bool:
        """Return True: it is there to be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Wait for bytes and put them into `buffer`; return their number, 0 at the end."""
        ready, _, _ = select.select([self._source, self._wake], [], [])
        if self._wake in ready:
            return 0
        view = memoryview(buffer)
        found = os.read(self._source, len(view))
        view[: len(found)] = found
        return len(found)

    def end(self) -> None:
        """Have whoever reads, or will, meet the end."""
        os.write(self._waker, b".")


class TextPositions:
    """The lines of one text; spans count characters from 1, positions of the protocol code units from 0.

    `units` counts those of a text, as client and server agreed.  Places behind the end of a line or of the
    text move there.
    """

    def __init__(self, text: str, units: Callable[[str], int]) -> None:
        self.lines, self._units = split_lines(text), units

    def range_of(self, span: Span) -> types.Range:
        """The start and the end of `span`."""
        start, end = self.position(span.line, span.column), self.position(span.end_line, span.end_column)
        return types.Range(start=start, end=max(start, end))

    def position(self, line: int, column: int) -> types.Position:
        """The position in front of the character at `line` and `column`, both from 1."""
        if line > len(self.lines):
            line, column = len(self.lines), len(self.lines[-1]) + 1
        return types.Position(line=line - 1, character=self._units(self.lines[line - 1][: column - 1]))

    def place(self, position: types.Position) -> tuple[int, int]:
        """The line and column, both from 1, of the character behind `position`, or that it lies in."""
        if position.line >= len(self.lines):
            return len(self.lines), len(self.lines[-1]) + 1
        text, units = self.lines[position.line], 0
        for column, character in enumerate(text, 1):
            units += self._units(character)
            if units > position.character:
                return position.line + 1, column
        return position.line + 1, len(text) + 1


SOURCE = "symalloc"
_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.NOTE: types.DiagnosticSeverity.Information,
}
_UNNECESSARY = frozenset({"SYM202", "SYM206", UNUSED_SUPPRESSION})  # what they point at can be deleted


@dataclass(slots=True, kw_only=True)
class OpenText:
    """A text that the editor has open; `checked` is what was found in it, or in an older version.

    `changed`: when it was changed last, in the event loop's time.  `checking` is under way until the text was
    checked as it is.
    """

    uri: str
    path: Path
    text: str
    version: int | None
    changed: float
    checked: CheckedText | None = None
    checking: asyncio.Task[None] | None = None
    closed: bool = False


class TextFindings:
    """The findings in an open text, in terms of the protocol."""

    def __init__(self, document: OpenText, linted: LintedText, units: Callable[[str], int]) -> None:
        source = linted.reading.source
        self._document, self.linted = document, linted
        self.positions = TextPositions(document.text, units)
        self.script = parse_user_script(source) if source else None

    def diagnostic(self, finding: Diagnostic) -> types.Diagnostic:
        """The finding at its place; what else it points to in the text is related to it."""
        related = [
            types.DiagnosticRelatedInformation(
                location=types.Location(uri=self._document.uri, range=self.positions.range_of(span)),
                message=text,
            )
            for span, text in _further(finding)
            if self._holds(span)
        ]
        function = f"\nin `{finding.function}`" if finding.function and not self._holds(finding.span) else ""
        page = self.linted.session.linter.rulebook.get(finding.rule).file.absolute().as_uri()
        return types.Diagnostic(
            range=self.range_of(finding),
            severity=_SEVERITIES[finding.severity],
            code=finding.rule,
            code_description=types.CodeDescription(href=page),
            source=SOURCE,
            message=body_of(finding, help_too=True) + function,
            tags=[types.DiagnosticTag.Unnecessary] if finding.rule in _UNNECESSARY else None,
            related_information=related or None,
        )

    def range_of(self, finding: Diagnostic) -> types.Range:
        """The place of a finding, of the name of its function, or the first line of the text."""
        if finding.span is not None and self._holds(finding.span):
            return self.positions.range_of(finding.span)
        script = self.script
        node = enclosing_definition(script, finding.module, finding.function) if script else None
        if script is None or node is None:
            return self.positions.range_of(Span("", 1, 1, 1, len(self.positions.lines[0]) + 1))
        line, end = node.lineno, len(node.name)
        column = script.lines[line - 1].index(node.name, script.span(node).column - 1) + 1
        return self.positions.range_of(Span(script.file, line, column, line, column + end))

    def action(self, fix: Fix, diagnostic: types.Diagnostic) -> types.CodeAction:
        """The action that makes `fix` in the text as it is."""
        edits = [
            types.TextEdit(range=self.positions.range_of(edit.span), new_text=edit.text) for edit in fix.edits
        ]
        document = types.OptionalVersionedTextDocumentIdentifier(
            uri=self._document.uri, version=self._document.version
        )
        return types.CodeAction(
            title=fix.title,
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[diagnostic],
            is_preferred=True if fix.safe else None,
            edit=types.WorkspaceEdit(
                document_changes=[types.TextDocumentEdit(text_document=document, edits=edits)]
            ),
        )

    def _holds(self, span: Span | None) -> bool:
        """True where `span` points into the text itself, not into a script that TVM prints."""
        source = self.linted.reading.source
        return span is not None and source is not None and span.file == source.file


def _further(diagnostic: Diagnostic) -> Iterator[tuple[Span, str]]:
    yield from ((label.span, label.text) for label in diagnostic.labels)
    for one in diagnostic.dependents:
        if one.span is not None:
            yield one.span, one.said


Made = TypeVar("Made")
_FIRST_LINE = types.Range(start=types.Position(line=0, character=0), end=types.Position(line=1, character=0))


class Editor(LanguageServer):  # type: ignore[misc]  # pygls is not checked
    """Connects the protocol with the checker, which runs in a thread of its own."""

    def __init__(self) -> None:
        super().__init__(SOURCE, version(SOURCE), text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self._input = EndableInput(0)
        self._asked_to_stop, self._status = False, 0
        self._settings = ServerOptions()
        self._complaint = ""
        self._checker = TextChecker(self._settings)
        self._checking = ThreadPoolExecutor(1, "symalloc-checker")
        self._texts: dict[str, OpenText] = {}
        actions = types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])
        for name, handler in (
            (types.INITIALIZE, self.initialize),
            (types.INITIALIZED, self.initialized),
            (types.SHUTDOWN, self.asked_to_stop),
            (types.EXIT, self.exit),
            (types.TEXT_DOCUMENT_DID_OPEN, self.did_open),
            (types.TEXT_DOCUMENT_DID_CHANGE, self.did_change),
            (types.TEXT_DOCUMENT_DID_SAVE, self.did_save),
            (types.TEXT_DOCUMENT_DID_CLOSE, self.did_close),
            (types.TEXT_DOCUMENT_HOVER, self.hover),
        ):
            self.feature(name)(partial(handler))  # pygls sets attributes, which methods do not take
        self.feature(types.TEXT_DOCUMENT_CODE_ACTION, actions)(partial(self.code_actions))

    def shutdown(self) -> None:
        """Stop serving; let go of whoever waits for the client."""
        self._input.end()
        super().shutdown()

    def serve(self) -> int:
        """Serve over standard input and output until the editor is gone; return the exit status.

        It is 1 where the editor said "exit" without "shutdown".
        """
        output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no message
        try:
            self.start_io(stdin=io.BufferedReader(self._input), stdout=output)
        finally:
            self._checker.ending = True
            for document in self._texts.values():
                document.closed = True
            self._checking.submit(self._checker.close)
            self._checking.shutdown()
        return self._status

    # -- the life of a text ----------------------------------------------------------------------------------

    def initialize(self, params: types.InitializeParams) -> None:
        """Take the options of the editor; those that make no sense are told, and left out."""
        try:
            self._settings = read_options(params.initialization_options)
        except UsageError as error:
            self._complaint = str(error)
        self._checker = TextChecker(self._settings)

    def initialized(self, _: types.InitializedParams) -> None:
        """Have TVM loaded before the first text comes."""
        if self._complaint:
            warning = types.MessageType.Warning
            shown = types.ShowMessageParams(type=warning, message=f"symalloc: {self._complaint}")
            self.window_show_message(shown)
        self._checking.submit(self._checker.start)

    def asked_to_stop(self, *_: object) -> None:
        """Note that the editor ends the server in good order."""
        self._asked_to_stop = True

    def exit(self, *_: object) -> None:
        """Note with which status the process shall end."""
        self._status = 0 if self._asked_to_stop else 1

    async def did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        """Check a text that was opened."""
        uri = params.text_document.uri
        path = _path(uri, params.text_document.language_id)
        loop = asyncio.get_running_loop()
        self._texts[uri] = OpenText(
            uri=uri,
            path=path,
            text=params.text_document.text,
            version=params.text_document.version,
            changed=loop.time() - self._settings.debounce / 1000,
        )
        self._check_soon(self._texts[uri])

    async def did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        """Check a text that was changed, once it is not changed for a moment."""
        document = self._texts.get(params.text_document.uri)
        if document is not None:
            document.text = self.workspace.get_text_document(document.uri).source
            document.version = params.text_document.version
            document.changed = asyncio.get_running_loop().time()
            self._check_soon(document)

    async def did_save(self, params: types.DidSaveTextDocumentParams) -> None:
        """Check again: the configuration may be another one."""
        for document in self._texts.values():
            if document.uri == params.text_document.uri or params.text_document.uri.endswith(".toml"):
                document.checked = None
                self._check_soon(document)

    async def did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        """Forget a text and its findings."""
        document = self._texts.pop(params.text_document.uri, None)
        if document is not None:
            document.closed = True
            self._publish(document, [])

    # -- checking --------------------------------------------------------------------------------------------

    def _check_soon(self, document: OpenText) -> None:
        if document.checking is None or document.checking.done():
            document.checking = asyncio.create_task(self._check(document))

    async def _check(self, document: OpenText) -> None:
        """Check `document` until the text checked is the text it has."""
        loop = asyncio.get_running_loop()
        while not document.closed:
            while (left := document.changed + self._settings.debounce / 1000 - loop.time()) > 0:
                await asyncio.sleep(left)
            text = document.text

            def outdated(text: str = text) -> bool:
                return document.closed or document.text != text

            try:
                checked = await self._in_thread(partial(self._checker.check, document.path, text, outdated))
            except OutdatedError:
                continue
            except Exception as error:
                failure = f"symalloc failed, please report it: {type(error).__name__}: {error}"
                checked = CheckedText(text=text, failure=failure)
            if not outdated():
                document.checked = checked
                self._publish(document, list(self._diagnostics(document, checked)))
                return

    async def _settled(self, uri: str) -> TextFindings | None:
        """The findings in the text `uri` as it is, once they are known; None where there can be none."""
        document = self._texts.get(uri)
        if document is not None and document.checking is not None:
            await asyncio.wait([document.checking])
        if document is None or document.checked is None or document.checked.text != document.text:
            return None
        return self._findings(document, document.checked)

    async def _in_thread(self, work: Callable[[], Made]) -> Made:
        return await asyncio.get_running_loop().run_in_executor(self._checking, work)

    def _publish(self, document: OpenText, found: list[types.Diagnostic]) -> None:
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri=document.uri, version=document.version, diagnostics=found)
        )

    def _diagnostics(self, document: OpenText, checked: CheckedText) -> Iterator[types.Diagnostic]:
        if checked.failure:
            yield types.Diagnostic(range=_FIRST_LINE, message=checked.failure, source=SOURCE)
        findings = self._findings(document, checked)
        if findings is not None:
            yield from map(findings.diagnostic, findings.linted.diagnostics)

    def _findings(self, document: OpenText, checked: CheckedText) -> TextFindings | None:
        if checked.linted is None:
            return None
        return TextFindings(document, checked.linted, self.workspace.position_codec.client_num_units)

    # -- requests --------------------------------------------------------------------------------------------

    async def hover(self, params: types.HoverParams) -> types.Hover | None:
        """Describe the tensor or storage under the cursor."""
        findings = await self._settled(params.text_document.uri)
        if findings is None:
            return None
        line, column = findings.positions.place(params.position)
        shown = await self._in_thread(partial(hover_text, findings.linted, line, column, self._settings.bind))
        if shown is None:
            return None
        contents = types.MarkupContent(kind=types.MarkupKind.Markdown, value=shown.markdown)
        return types.Hover(contents=contents, range=findings.positions.range_of(shown.span))

    async def code_actions(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """The fixes of the findings in a range, each tried before, and comments that allow them."""
        findings = await self._settled(params.text_document.uri)
        script = None if findings is None else findings.script
        if findings is None or script is None:
            return []
        ranges = ((d, findings.range_of(d)) for d in findings.linted.diagnostics)
        here = [d for d, at in ranges if at.start <= params.range.end and params.range.start <= at.end]
        fixes = await self._in_thread(partial(findings.linted.fixes, here))
        actions = []
        for one in here:
            allowed = allow_finding(one, script)
            safe, unsafe = ([fix for fix in fixes[id(one)] if fix.safe is kind] for kind in (True, False))
            unsafe = [replace(fix, title=f"{fix.title} (may change behaviour)") for fix in unsafe]
            offered = [*safe, *unsafe, *([allowed] if allowed else [])]
            shown = findings.diagnostic(one)
            actions += [findings.action(fix, shown) for fix in offered]
        return actions


def _path(uri: str, language: str) -> Path:
    """The file that `uri` names; one that is not saved yet has a name by its language."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    if path is not None and "\0" not in path:
        return Path(path)
    name = PurePosixPath(unquote(urlsplit(uri).path)).name.replace("\0", "") or "untitled"
    endings = {"python": ".py", "json": ".json"}
    ending = endings.get(language, "")
    return Path.cwd() / (name if name.endswith(ending) else name + ending)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The settings of the language server.  Raises UsageError for values that make no sense."""

    debounce: int = option(
        50, whole(0), "Milliseconds without a change before a text is checked.", in_file=True
    )
    timeout: float = option(60.0, SECONDS, "The most time for reading one text.", in_file=True)
    bind: Mapping[str, int] = option({}, BINDING, "Sizes at which a hover shows bytes.", in_file=True)

    def __post_init__(self) -> None:
        read_fields(self)


def read_options(given: object) -> ServerOptions:
    """Read the options of an editor, None where it gives none.  Raises UsageError for what makes no sense."""
    if given is None:
        return ServerOptions()
    if not isinstance(given, Mapping):
        raise UsageError(f"initializationOptions is {shown(given)}; it must be an object")
    return ServerOptions(**read_table(ServerOptions, given, "initializationOptions"))


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
    failure: str = ""


class TextChecker:
    """Lints texts; a session lasts as long as its configuration is unchanged.

    Where `ending` is set, from whatever thread, the text that is read is given up.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._options, self.ending = options, False
        self._pool = WorkerPool(size=1)
        self._sessions: dict[Path | None, tuple[int, LintSession]] = {}

    def start(self) -> None:
        """Start the worker and load the rules, before the first text comes."""
        self._pool.start()
        self._session(None)

    def check(self, path: Path, text: str, outdated: Callable[[], bool] = lambda: False) -> CheckedText:
        """Check `text`, taken as the contents of `path`.

        Raises OutdatedError where it takes long and is `outdated` meanwhile.
        """
        begun = monotonic()

        def watch() -> None:
            if self.ending or (outdated() and monotonic() - begun > _PATIENCE):
                raise OutdatedError

        try:
            configuration = find_config([str(path)])
            session = self._session(configuration)
            file = _shown(path, configuration)
            if session.options.excludes(file) or not _may_hold_modules(path, text):
                return CheckedText(text=text)
            return CheckedText(text=text, linted=session.lint_text(file, text, watch))
        except SymallocError as error:
            return CheckedText(text=text, failure=str(error))

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def _session(self, file: Path | None) -> LintSession:
        """The session of a configuration file, None without one, as the file is now."""
        try:
            changed = file.stat().st_mtime_ns if file else 0
        except OSError:  # deleted a moment ago
            return self._session(None)
        known = self._sessions.get(file)
        if known is None or known[0] != changed:
            options = replace(load_config(file) if file else LintOptions(), timeout=self._options.timeout)
            known = self._sessions[file] = changed, LintSession(options, self._pool)
        return known[1]


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


def _shown(path: Path, configuration: Path | None) -> str:
    """The name of the file for patterns of the configuration: relative to its folder."""
    inside = configuration is not None and path.is_relative_to(configuration.parent)
    return os.fspath(path.relative_to(configuration.parent) if inside and configuration else path)
