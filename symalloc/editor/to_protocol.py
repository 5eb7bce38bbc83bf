"""From findings and fixes to the diagnostics and code actions of the Language Server Protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lsprotocol import types

from symalloc.editor.text_positions import TextPosition, TextPositions
from symalloc.linter.diagnostic import Diagnostic, Fix, Severity, TextEdit
from symalloc.linter.suppressions import UNUSED_SUPPRESSION, enclosing_definition
from symalloc.linter.user_script import UserScript
from symalloc.program.span import Span
from symalloc.report.lines import body_of
from symalloc.rulebook.book import Rulebook
from symalloc.session.linting import LintedText

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
