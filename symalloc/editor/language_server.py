"""The language server: it checks texts when they change, and answers for those that are open."""

from __future__ import annotations

import asyncio
import io
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from symalloc.editor.checker import CheckedText, OutdatedError, TextChecker
from symalloc.editor.hovers import hover_text
from symalloc.editor.server_options import ServerOptions, read_options
from symalloc.editor.text_positions import TextPosition, TextPositions
from symalloc.errors import UsageError
from symalloc.linter.diagnostic import Diagnostic, Fix, Severity, TextEdit
from symalloc.linter.suppressions import UNUSED_SUPPRESSION, allow_finding, enclosing_definition
from symalloc.linter.user_script import UserScript, parse_user_script
from symalloc.program.span import Span
from symalloc.report.formats import body_of
from symalloc.rulebook.book import Rulebook
from symalloc.session.linting import LintedText


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


SOURCE = "symalloc"
_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.NOTE: types.DiagnosticSeverity.Information,
}
_UNNECESSARY = frozenset({"SYM202", "SYM206", UNUSED_SUPPRESSION})  # what they point at can be deleted


def protocol_diagnostic(
    diagnostic: Diagnostic,
    uri: str,
    linted: LintedText,
    script: UserScript | None,
    positions: TextPositions,
    rules: Rulebook,
) -> types.Diagnostic:
    """The finding at its place in the text `uri`; one without a place there stands at its function."""
    related = [
        types.DiagnosticRelatedInformation(
            location=types.Location(uri=uri, range=protocol_range(span, positions)), message=text
        )
        for span, text in _further(diagnostic)
        if _is_in(span, linted)
    ]
    unnecessary = [types.DiagnosticTag.Unnecessary] if diagnostic.rule in _UNNECESSARY else None
    return types.Diagnostic(
        range=finding_range(diagnostic, linted, script, positions),
        severity=_SEVERITIES[diagnostic.severity],
        code=diagnostic.rule,
        code_description=types.CodeDescription(href=rules.get(diagnostic.rule).file.absolute().as_uri()),
        source=SOURCE,
        message=body_of(diagnostic, help_too=True) + _function(diagnostic, linted),
        tags=unnecessary,
        related_information=related or None,
    )


def finding_range(
    diagnostic: Diagnostic, linted: LintedText, script: UserScript | None, positions: TextPositions
) -> types.Range:
    """The place of a finding, of the name of its function, or the first line of the text."""
    span = diagnostic.span
    if span is not None and _is_in(span, linted):
        return protocol_range(span, positions)
    node = enclosing_definition(script, diagnostic.module, diagnostic.function) if script else None
    if script is None or node is None:
        return protocol_range(Span("", 1, 1, 1, len(positions.lines[0]) + 1), positions)
    line = script.lines[node.lineno - 1]
    column = line.index(node.name, script.span(node).column - 1) + 1
    return protocol_range(
        Span(script.file, node.lineno, column, node.lineno, column + len(node.name)), positions
    )


def code_action(
    fix: Fix, uri: str, version: int | None, diagnostic: types.Diagnostic, positions: TextPositions
) -> types.CodeAction:
    """The action that makes `fix` in version `version` of the text."""
    edits = [protocol_edit(edit, positions) for edit in fix.edits]
    document = types.OptionalVersionedTextDocumentIdentifier(uri=uri, version=version)
    return types.CodeAction(
        title=fix.title,
        kind=types.CodeActionKind.QuickFix,
        diagnostics=[diagnostic],
        is_preferred=True if fix.safe else None,
        edit=types.WorkspaceEdit(
            document_changes=[types.TextDocumentEdit(text_document=document, edits=edits)]
        ),
    )


def protocol_edit(edit: TextEdit, positions: TextPositions) -> types.TextEdit:
    """The edit in units of the protocol."""
    return types.TextEdit(range=protocol_range(edit.span, positions), new_text=edit.text)


def protocol_range(span: Span, positions: TextPositions) -> types.Range:
    """The span in units of the protocol."""
    start, end = positions.range_of(span)
    return types.Range(start=_position(start), end=_position(end))


def touches(a: types.Range, b: types.Range) -> bool:
    """True where two ranges share text, or an end; a cursor is an empty range."""
    return _key(a.start) <= _key(b.end) and _key(b.start) <= _key(a.end)


def _is_in(span: Span, linted: LintedText) -> bool:
    """True where `span` points into the text itself, not into a script that TVM prints."""
    return linted.reading.source is not None and span.file == linted.reading.source.file


def _function(diagnostic: Diagnostic, linted: LintedText) -> str:
    """The function of a finding that has no place in the text."""
    placed = diagnostic.span is not None and _is_in(diagnostic.span, linted)
    return f"\nin `{diagnostic.function}`" if diagnostic.function and not placed else ""


def _key(position: types.Position) -> tuple[int, int]:
    return position.line, position.character


def _position(position: TextPosition) -> types.Position:
    return types.Position(line=position.line, character=position.unit)


def _further(diagnostic: Diagnostic) -> Iterator[tuple[Span, str]]:
    yield from ((label.span, label.text) for label in diagnostic.labels)
    for one in diagnostic.dependents:
        if one.span is not None:
            yield one.span, f"{one.rule}: {one.constraint}" if one.constraint else one.rule


def titled(fixes: Sequence[Fix]) -> Iterator[Fix]:
    """The fixes, safe ones first; the title of one that may change behaviour says so."""
    for fix in sorted(fixes, key=lambda fix: not fix.safe):
        yield fix if fix.safe else replace(fix, title=f"{fix.title} (may change behaviour)")


Made = TypeVar("Made")
_FIRST_LINE = types.Range(start=types.Position(line=0, character=0), end=types.Position(line=1, character=0))


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


class _Server(LanguageServer):  # type: ignore[misc]  # pygls is not checked
    """The server of the protocol; it lets go of whoever waits for the client when it shuts down."""

    def __init__(self, source: EndableInput) -> None:
        super().__init__(SOURCE, version(SOURCE), text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self._source = source

    def shutdown(self) -> None:
        """Stop serving."""
        self._source.end()
        super().shutdown()


class Editor:
    """Connects the protocol with the checker, which runs in a thread of its own."""

    def __init__(self) -> None:
        self._input = EndableInput(0)
        self.server = _Server(self._input)
        self._asked_to_stop, self._status = False, 0
        self._options = ServerOptions()
        self._complaint = ""
        self._checker = TextChecker(self._options)
        self._thread = ThreadPoolExecutor(1, "symalloc-checker")
        self._open: dict[str, OpenText] = {}
        actions = types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])
        for name, handler in (
            (types.INITIALIZE, self.initialize),
            (types.INITIALIZED, self.initialized),
            (types.SHUTDOWN, self.shutdown),
            (types.EXIT, self.exit),
            (types.TEXT_DOCUMENT_DID_OPEN, self.did_open),
            (types.TEXT_DOCUMENT_DID_CHANGE, self.did_change),
            (types.TEXT_DOCUMENT_DID_SAVE, self.did_save),
            (types.TEXT_DOCUMENT_DID_CLOSE, self.did_close),
            (types.TEXT_DOCUMENT_HOVER, self.hover),
        ):
            self.server.feature(name)(partial(handler))  # pygls sets attributes, which methods do not take
        self.server.feature(types.TEXT_DOCUMENT_CODE_ACTION, actions)(partial(self.code_actions))

    def serve(self) -> int:
        """Serve over standard input and output until the editor is gone; return the exit status.

        It is 1 where the editor said "exit" without "shutdown".
        """
        output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no message
        try:
            self.server.start_io(stdin=io.BufferedReader(self._input), stdout=output)
        finally:
            self._checker.ending = True
            for document in self._open.values():
                document.closed = True
            self._thread.submit(self._checker.close)
            self._thread.shutdown()
        return self._status

    # -- the life of a text ----------------------------------------------------------------------------------

    def initialize(self, params: types.InitializeParams) -> None:
        """Take the options of the editor; those that make no sense are told, and left out."""
        try:
            self._options = read_options(params.initialization_options)
        except UsageError as error:
            self._complaint = str(error)
        self._checker = TextChecker(self._options)

    def initialized(self, _: types.InitializedParams) -> None:
        """Have TVM loaded before the first text comes."""
        if self._complaint:
            warning = types.MessageType.Warning
            shown = types.ShowMessageParams(type=warning, message=f"symalloc: {self._complaint}")
            self.server.window_show_message(shown)
        self._thread.submit(self._checker.start)

    def shutdown(self, *_: object) -> None:
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
        self._open[uri] = OpenText(
            uri=uri,
            path=path,
            text=params.text_document.text,
            version=params.text_document.version,
            changed=loop.time() - self._options.debounce / 1000,
        )
        self._check_soon(self._open[uri])

    async def did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        """Check a text that was changed, once it is not changed for a moment."""
        document = self._open.get(params.text_document.uri)
        if document is not None:
            document.text = self.server.workspace.get_text_document(document.uri).source
            document.version = params.text_document.version
            document.changed = asyncio.get_running_loop().time()
            self._check_soon(document)

    async def did_save(self, params: types.DidSaveTextDocumentParams) -> None:
        """Check again: the configuration may be another one."""
        for document in self._open.values():
            if document.uri == params.text_document.uri or params.text_document.uri.endswith(".toml"):
                document.checked = None
                self._check_soon(document)

    async def did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        """Forget a text and its findings."""
        document = self._open.pop(params.text_document.uri, None)
        if document is not None:
            document.closed = True
            self._thread.submit(self._checker.forget, document.path)
            self._publish(document, [])

    # -- checking --------------------------------------------------------------------------------------------

    def _check_soon(self, document: OpenText) -> None:
        if document.checking is None or document.checking.done():
            document.checking = asyncio.create_task(self._check(document))

    async def _check(self, document: OpenText) -> None:
        """Check `document` until the text checked is the text it has."""
        loop = asyncio.get_running_loop()
        while not document.closed:
            while (left := document.changed + self._options.debounce / 1000 - loop.time()) > 0:
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

    async def _settled(self, uri: str) -> tuple[OpenText, CheckedText] | None:
        """The text `uri` and what was found in it as it is, once that is known."""
        document = self._open.get(uri)
        if document is not None and document.checking is not None:
            await asyncio.wait([document.checking])
        if document is None or document.checked is None or document.checked.text != document.text:
            return None
        return document, document.checked

    async def _in_thread(self, work: Callable[[], Made]) -> Made:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _publish(self, document: OpenText, found: list[types.Diagnostic]) -> None:
        self.server.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri=document.uri, version=document.version, diagnostics=found)
        )

    def _diagnostics(self, document: OpenText, checked: CheckedText) -> Iterator[types.Diagnostic]:
        if checked.failure:
            yield types.Diagnostic(range=_FIRST_LINE, message=checked.failure, source=SOURCE)
        if checked.linted is None or checked.session is None:
            return
        positions, script = self._positions(checked), _script(checked)
        rules = checked.session.linter.rulebook
        for one in checked.linted.diagnostics:
            yield protocol_diagnostic(one, document.uri, checked.linted, script, positions, rules)

    def _positions(self, checked: CheckedText) -> TextPositions:
        agreed = types.PositionEncodingKind(self.server.workspace.position_encoding)  # text, or one of these
        return TextPositions(checked.text, agreed.value)

    # -- requests --------------------------------------------------------------------------------------------

    async def hover(self, params: types.HoverParams) -> types.Hover | None:
        """Describe the tensor or storage under the cursor."""
        found = await self._settled(params.text_document.uri)
        linted = found[1].linted if found else None
        if found is None or linted is None:
            return None
        positions = self._positions(found[1])
        line, column = positions.place(TextPosition(params.position.line, params.position.character))
        shown = await self._in_thread(lambda: hover_text(linted, line, column, self._options.bind))
        if shown is None:
            return None
        return types.Hover(
            contents=types.MarkupContent(kind=types.MarkupKind.Markdown, value=shown.markdown),
            range=protocol_range(shown.span, positions),
        )

    async def code_actions(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """The fixes of the findings in a range, each tried before, and comments that allow them."""
        found = await self._settled(params.text_document.uri)
        linted = found[1].linted if found else None
        if found is None or linted is None or found[1].session is None:
            return []
        (document, checked), script = found, _script(found[1])
        version, positions, rules = (
            document.version,
            self._positions(checked),
            found[1].session.linter.rulebook,
        )
        if script is None:
            return []
        here = [
            one
            for one in linted.diagnostics
            if touches(finding_range(one, linted, script, positions), params.range)
        ]
        fixes = await self._in_thread(lambda: checked.fixes(here))
        actions = []
        for one in here:
            shown = protocol_diagnostic(one, document.uri, linted, script, positions, rules)
            allowed = allow_finding(one, script)
            offered = [*titled(fixes[id(one)]), *([allowed] if allowed else [])]
            actions += [code_action(fix, document.uri, version, shown, positions) for fix in offered]
        return actions


def _script(checked: CheckedText) -> UserScript | None:
    source = checked.linted.reading.source if checked.linted else None
    return parse_user_script(source) if source else None


def _path(uri: str, language: str) -> Path:
    """The file that `uri` names; one that is not saved yet has a name by its language."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    if path is not None and "\0" not in path:
        return Path(path)
    name = PurePosixPath(unquote(urlsplit(uri).path)).name.replace("\0", "") or "untitled"
    endings = {"python": ".py", "json": ".json"}
    ending = endings.get(language, "")
    return Path.cwd() / (name if name.endswith(ending) else name + ending)
