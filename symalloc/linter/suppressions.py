"""Suppression comments in the user's source: they allow findings, and are findings where they allow nothing.

    alloc = R.memory.alloc_tensor(...)  # symalloc: allow(SYM101) -- m is at most 4 in this product
    # symalloc: allow(tensor-exceeds-storage, SYM203)
    @R.function
    def main(...):  # the comment in front of a decorator covers the whole function (or class)
    # symalloc: allow-file(SYM205)

A comment behind code covers that statement, one on a line of its own the next statement.

A baseline is a file of the findings that a project knows of, so that a run shows the new ones only.  A
finding is known again by its fingerprint.  One that got worse counts as new, and what could not be read
(SYM902) is never known.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from symalloc.errors import UsageError
from symalloc.linter.diagnostic import (
    CANNOT_BE_READ,
    Diagnostic,
    Fix,
    Report,
    Severity,
    TextEdit,
    UserScript,
    parse_user_script,
)
from symalloc.program.span import Source, Span, split_lines
from symalloc.prover.domain import Verdict
from symalloc.rulebook.rule import Rule, Rulebook, RuleError

UNUSED_SUPPRESSION = "SYM901"
_COMMENT = re.compile(
    r"#\s*symalloc\s*:\s*(?P<verb>[\w-]*)\s*(?:\((?P<keys>[^()]*)\))?(?P<rest>.*)", re.DOTALL
)
_KEY = re.compile(r"[^\s,]+")
EXPECTED = "expected `# symalloc: allow(SYM101)` or `# symalloc: allow-file(SYM101)`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """One rule allowed over the lines [first, last] of a file; `last` is None for the whole file.

    `key` is what the comment names (an id or a name), `span` where; `comment` is the whole comment.
    `scope` names the function or class that the comment covers, for findings that have no place in the
    file.  `problem` says what is wrong with a comment that cannot be understood.
    """

    key: str
    span: Span
    comment: Span
    first: int = 1
    last: int | None = None
    scope: str | None = None
    problem: str | None = None

    def covers(self, diagnostic: Diagnostic, rules: frozenset[str]) -> bool:
        """True where it allows `diagnostic`; `rules` are the ids that `key` means."""
        if self.problem or diagnostic.rule not in rules:
            return False
        if self.last is None:
            return True
        span = diagnostic.span
        if span is None or span.file != self.span.file:
            return self.scope is not None and self.scope in (diagnostic.function, diagnostic.module)
        return span.line <= self.last and span.end_line >= self.first


def find_suppressions(source: Source) -> tuple[Suppression, ...]:
    """The suppressions in a Python source; none where it is no Python (reading it reports that)."""
    script = parse_user_script(source) if "symalloc" in source.text else None
    if script is None:
        return ()
    try:
        tokens = list(_tokens(script))
    except (SyntaxError, tokenize.TokenError):
        return ()
    statements = list(_statements(tokens))
    comments = ((t, _COMMENT.fullmatch(t.string)) for t in tokens if t.type == tokenize.COMMENT)
    read = (_read(script, statements, token.start, match) for token, match in comments if match)
    return tuple(suppression for found in read for suppression in found)


@dataclass(frozen=True, slots=True)
class _LogicalLine:
    """A logical line: its first and last physical line."""

    first: int
    last: int
    is_decorator: bool


def _read(
    script: UserScript, statements: Sequence[_LogicalLine], start: tuple[int, int], match: re.Match[str]
) -> Iterator[Suppression]:
    """The suppressions of one comment."""
    line, column = start[0], start[1] + 1
    whole = Span(file=script.file, line=line, column=column, end_line=line, end_column=column + match.end())
    base = Suppression(key="", span=whole, comment=whole)
    problem = _problem(match)
    if problem:
        yield replace(base, problem=problem)
        return
    base = base if match["verb"] == "allow-file" else _placed(script, statements, base)
    column += match.start("keys")
    for key in _KEY.finditer(match["keys"]):
        place = whole._replace(column=column + key.start(), end_column=column + key.end())
        yield replace(base, key=key.group(), span=place)


def _placed(script: UserScript, statements: Sequence[_LogicalLine], base: Suppression) -> Suppression:
    """`base` with the lines that the comment covers."""
    line = base.comment.line
    statement = next((s for s in statements if s.last >= line), None)
    if statement is None:
        return replace(base, problem="no code follows this comment")
    definitions = (n for n in ast.walk(script.tree) if isinstance(n, ast.FunctionDef | ast.ClassDef))
    for node in definitions if statement.is_decorator and statement.first > line else ():
        if node.decorator_list and node.decorator_list[0].lineno == statement.first:
            last = node.end_lineno or statement.last
            return replace(base, first=statement.first, last=last, scope=node.name)
    return replace(base, first=statement.first, last=statement.last)


def _problem(match: re.Match[str]) -> str | None:
    verb, keys = match["verb"], match["keys"]
    if verb not in ("allow", "allow-file"):
        return (
            f"`{verb}` is no symalloc comment; {EXPECTED}" if verb else f"nothing is allowed here; {EXPECTED}"
        )
    if keys is None or not _KEY.search(keys):
        return f"no rule is named; {EXPECTED}"
    rest = match["rest"].strip()
    if rest and not rest.startswith(("--", "#")):
        return "write the reason behind `--`: `# symalloc: allow(SYM101) -- reason`"
    return None


def _statements(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[_LogicalLine]:
    silent = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    first: tokenize.TokenInfo | None = None
    for token in tokens:
        if token.type == tokenize.NEWLINE and first is not None:
            yield _LogicalLine(first.start[0], token.end[0], first.string == "@")
            first = None
        elif first is None and token.type not in silent:
            first = token


def apply_suppressions(
    diagnostics: Sequence[Diagnostic],
    suppressions: Sequence[Suppression],
    *,
    file: str,
    known: Rulebook,
    active: Rulebook,
    report_unused: bool,
) -> list[Diagnostic]:
    """The findings of `file` that its comments leave, and those about the comments.

    `known` are all rules, `active` those of this run.  `report_unused`: a comment that allowed nothing is a
    finding, too.  One that names no rule always is.
    """
    meanings = {s: _meaning(s, known) for s in suppressions}
    meant = {s: ids for s, ids in meanings.items() if isinstance(ids, frozenset)}
    kept: list[Diagnostic] = []
    used: set[Suppression] = set()
    for diagnostic in diagnostics:
        covering = [s for s, ids in meant.items() if s.covers(diagnostic, ids)]
        used.update(covering)
        kept += () if covering else (diagnostic,)
    checked = {rule.id for rule in active.rules}
    if UNUSED_SUPPRESSION not in checked:
        return kept
    rule = known.get(UNUSED_SUPPRESSION)
    for one, meaning in meanings.items():
        if isinstance(meaning, str):
            message = f"suppression without effect: {meaning}"
            kept.append(Diagnostic.of_rule(rule, {}, message=message, file=file, span=one.span))
        elif report_unused and one not in used and meaning <= checked:
            kept.append(_unused(rule, one, file, suppressions))
    return kept


def _meaning(suppression: Suppression, known: Rulebook) -> frozenset[str] | str:
    """The ids that the comment names, or what is wrong with it."""
    if suppression.problem:
        return suppression.problem
    try:
        return known.ids(suppression.key)
    except RuleError as error:
        return str(error)


def _unused(rule: Rule, one: Suppression, file: str, suppressions: Iterable[Suppression]) -> Diagnostic:
    others = [s.key for s in suppressions if s.comment == one.comment and s is not one]
    return Diagnostic.of_rule(
        rule,
        {"rule": one.key},
        file=file,
        span=one.span,
        help=rule.help_about({}),
        candidates=(partial(remove_suppression, one, others),),
    )


def remove_suppression(unused: Suppression, others: Sequence[str], script: UserScript) -> Fix:
    """Delete the rule from a comment that allows `others` as well; with the last rule the comment."""
    comment, line = unused.comment, script.lines[unused.comment.line - 1]
    code = line[: comment.column - 1].rstrip()
    if others:
        start, end = line.index("(", comment.column), line.index(")", comment.column)
        span = comment._replace(column=start + 2, end_column=end + 1)
    elif code:  # the white space in front goes, too
        span = comment._replace(column=len(code) + 1)
    else:
        span = comment._replace(column=1, end_line=comment.line + 1, end_column=1)
    edit = TextEdit(span=span, text=", ".join(others))
    return Fix(title=f"remove `{unused.key}` from the comment", edits=(edit,), safe=True)


_ALLOWED = re.compile(r"#\s*symalloc\s*:\s*allow\s*\((?P<keys>[^()]*)\)")
_NEVER = frozenset({CANNOT_BE_READ, UNUSED_SUPPRESSION})  # these two are about reading, and about comments


def allow_finding(diagnostic: Diagnostic, script: UserScript) -> Fix | None:
    """The comment that allows `diagnostic`, behind its statement or in front of it.

    A finding without a place in the script is allowed for its function, or else its module.  None where no
    comment can allow it.
    """
    if diagnostic.rule in _NEVER:
        return None
    span, rule = diagnostic.span, diagnostic.rule
    if span is not None and span.file == script.file:
        edit = _for_line(script, span.line, rule)
        where = "here"
    else:
        node = enclosing_definition(script, diagnostic.module, diagnostic.function)
        if node is None or not node.decorator_list:
            return None
        edit = _in_front(script, min(d.lineno for d in node.decorator_list), rule)
        where = f"in `{node.name}`"
    if edit is None:
        return None
    return Fix(title=f"allow {rule} {where} with a comment", edits=(edit,), safe=False)


def enclosing_definition(
    script: UserScript, module: str, function: str
) -> ast.FunctionDef | ast.ClassDef | None:
    """The `def` of `function` in the class `module`; the class, or the lone function, where it has none.

    A module whose name is not the only one of its kind is written `name:line`.
    """
    name, _, line = module.partition(":")
    for outer in ast.walk(script.tree):
        if not isinstance(outer, ast.ClassDef | ast.FunctionDef) or outer.name != name:
            continue
        if not line or str(outer.lineno) == line:
            inner = (node for node in outer.body if isinstance(node, ast.FunctionDef))
            return next((node for node in inner if node.name == function), outer)
    return None


def _for_line(script: UserScript, line: int, rule: str) -> TextEdit | None:
    """Allow `rule` in the statement around `line`."""
    tokens = list(_tokens(script))
    statement = next((s for s in _statements(tokens) if s.first <= line <= s.last), None)
    if statement is None:
        return None
    last, text = statement.last, script.lines[statement.last - 1]
    comments = (token for token in tokens if token.type == tokenize.COMMENT and token.start[0] == last)
    comment = next(comments, None)
    if comment is None:
        return TextEdit(span=script.at(last, len(text.rstrip()) + 1), text=f"  # symalloc: allow({rule})")
    found = _ALLOWED.match(text, comment.start[1])
    if found is not None:
        return TextEdit(span=script.at(last, found.end("keys") + 1), text=f", {rule}")
    return _in_front(script, statement.first, rule)


def _in_front(script: UserScript, line: int, rule: str) -> TextEdit:
    """Allow `rule` by a comment on a line of its own."""
    return TextEdit(span=script.at(line), text=f"{script.indent(line)}# symalloc: allow({rule})\n")


def _tokens(script: UserScript) -> Iterator[tokenize.TokenInfo]:
    yield from tokenize.generate_tokens(io.StringIO("\n".join(script.lines)).readline)


def fingerprints(report: Report) -> list[str]:
    """The key of each finding: of its rule, function and the text of its line, not of the line's number.

    Findings of one file that agree in all of that are numbered.  The file's name is no part of a key.
    """
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for diagnostic in report:
        line = _line_of(diagnostic, report) or diagnostic.message
        text = "\0".join((*diagnostic.kind, diagnostic.stage or "", line))
        seen[diagnostic.file, text] += 1
        found.append(hashlib.sha256(f"{text}\0{seen[diagnostic.file, text]}".encode()).hexdigest()[:32])
    return found


def _line_of(d: Diagnostic, report: Report) -> str:
    source = report.sources.get(d.span.file) if d.span else None
    lines = split_lines(source.text) if source else []
    return lines[d.span.line - 1].strip() if d.span and d.span.line <= len(lines) else ""


VERSION = 1
Key: TypeAlias = tuple[str, str]  # the file, and the fingerprint


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True): ...


class KnownFinding(_Part, frozen=True, kw_only=True):
    """A finding of a baseline; `file` is relative to the baseline's folder."""

    file: str
    rule: str
    function: str
    severity: Severity
    verdict: Verdict | None
    fingerprint: str

    def covers(self, diagnostic: Diagnostic) -> bool:
        """True where `diagnostic`, which has the same fingerprint, is no worse than this."""
        definite = diagnostic.verdict is Verdict.ALWAYS_INVALID and self.verdict is not diagnostic.verdict
        return diagnostic.severity.rank >= self.severity.rank and not definite


class BaselineDocument(_Part, frozen=True, kw_only=True, tag_field="version", tag=VERSION):
    """The findings that are known to a project."""

    findings: tuple[KnownFinding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The findings known to a project; `folder` is the one that their files are relative to."""

    folder: Path
    known: Mapping[Key, KnownFinding]

    @classmethod
    def of(cls, report: Report, file: Path) -> Baseline:
        """Make the baseline of all findings of `report`, to be written to `file`.

        Raises UsageError where something could not be read: its findings would be missing.
        """
        if report.unread:
            raise UsageError(
                f"no baseline written to {file}: {report.unread[0]} could not be read in full (SYM902)"
            )
        folder = file.parent.resolve()
        found = zip(report, fingerprints(report), strict=True)
        known = (
            KnownFinding(
                file=_relative(d.file, folder),
                rule=d.rule,
                function=d.function,
                severity=d.severity,
                verdict=d.verdict,
                fingerprint=key,
            )
            for d, key in found
        )
        return cls(folder=folder, known={(one.file, one.fingerprint): one for one in known})

    @classmethod
    def load(cls, file: Path) -> Baseline:
        """Read the baseline in `file`; raises UsageError where it cannot be read or is none."""
        try:
            known = msgspec.json.decode(file.read_bytes(), type=BaselineDocument).findings
        except OSError as error:
            raise UsageError(f"baseline {file}: cannot be read: {error.strerror}") from None
        except msgspec.ValidationError as error:
            raise UsageError(
                f"baseline {file}: not a file that this `symalloc lint --write-baseline` wrote: {error}"
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise UsageError(f"baseline {file}: not valid JSON") from None
        return cls(folder=file.parent.resolve(), known={(one.file, one.fingerprint): one for one in known})

    def text(self) -> str:
        """The baseline as JSON: sorted, a line for each finding."""
        order = sorted(self.known.values(), key=lambda k: (k.file, k.rule, k.function, k.fingerprint))
        lines = ",\n".join(f"  {msgspec.json.encode(one).decode()}" for one in order)
        findings = f"[\n{lines}\n]" if lines else "[]"
        return f'{{"version": {VERSION}, "findings": {findings}}}\n'

    def applied(
        self, report: Report, rules: Collection[str], may_hold_modules: Callable[[Path], bool] = Path.is_file
    ) -> Report:
        """Leave the known findings out of `report`, and count them and those that are gone.

        A known finding is gone where the run checked its file with its rule (one of `rules`), or where the
        file is no more, or no model any more: `may_hold_modules` tells.
        """
        new, met = [], set()
        for diagnostic, fingerprint in zip(report, fingerprints(report), strict=True):
            key = (_relative(diagnostic.file, self.folder), fingerprint)
            known = self.known.get(key)
            if known is not None:
                met.add(key)
            if known is None or diagnostic.rule == CANNOT_BE_READ or not known.covers(diagnostic):
                new.append(diagnostic)
        read = {_relative(file, self.folder) for file in report.files}
        read -= {_relative(file, self.folder) for file in report.unread}
        stale = sum(
            one.rule in rules and (one.file in read or self._is_gone(one.file, may_hold_modules))
            for key, one in self.known.items()
            if key not in met
        )
        return replace(report, diagnostics=tuple(new), known=len(report) - len(new), stale=stale)

    def _is_gone(self, file: str, may_hold_modules: Callable[[Path], bool]) -> bool:
        script = file.rpartition(":")[0] or file  # of `file.py:function`
        there = next((f for f in (file, script) if os.path.lexists(self.folder / f)), None)
        if file.startswith("<") or there == script != file:
            return False
        path = self.folder / file
        return there is None or (path.is_file() and not may_hold_modules(path))


def _relative(file: str, folder: Path) -> str:
    """The path of `file` from `folder`, with slashes; what is no file (`<stdin>`) keeps its name."""
    if not file or file.startswith("<"):
        return file
    path = Path(file)
    return Path(os.path.relpath(path.parent.resolve() / path.name, folder)).as_posix()
