"""The formats of findings by name: text, JSON, SARIF, and one line a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

from msgspec import field

from symalloc.linter.diagnostic import Diagnostic, Fix, Report, Severity
from symalloc.linter.suppressions import fingerprints
from symalloc.program.span import Span
from symalloc.prover.domain import Verdict, counterexample_title
from symalloc.report.document import Binding, Count, Document, about, as_json, record
from symalloc.report.quantities import binding_text
from symalloc.report.text import render_text, visible

if TYPE_CHECKING:
    from symalloc.rulebook.rule import Rule

FORMATS = ("text", "concise", "json", "sarif", "github")


def render(report: Report, form: str, *, rules: Sequence[Rule] = (), **text_options: Any) -> str:
    """Render `report` in one of `FORMATS`; `rules` are for SARIF, `text_options` those of `render_text`."""
    if form == "text":
        return render_text(report, **text_options)
    return render_sarif(report, rules=rules) if form == "sarif" else _PLAIN[form](report)


# -- JSON --------------------------------------------------------------------------------------------------


class PlaceEntry(Document, frozen=True, kw_only=True):
    """A place that a finding stands for: of SYM401 with what does not hold there without the declared bounds.

    `constraint` is null for rules about lifetimes, and where nothing satisfies it; line and column count from
    1, null without a file.
    """

    rule: str
    constraint: str | None
    function: str | None
    file: str | None
    line: int | None
    column: int | None


class FixOffer(Document, frozen=True, kw_only=True):
    """The fix that is offered first."""

    title: str
    safe: bool


class FindingEntry(Document, frozen=True, kw_only=True):
    """A finding; line and column count from 1, and are null where it has no place in a file.

    `verdict` is null for findings that are no size constraint.  `path`: the branches on which it is a fault.
    `counterexample` breaks the rule, `smallest`: it is proved that no smaller binding does, by the largest
    value, then value by value in the order of names.  `precondition` is proved equivalent to the rule over
    the domain; `reason`: why nothing definite can be said; `guarded`: a check at run time stops the program
    before the fault.  `places`: what it stands for, as a finding of declared bounds (SYM401)
    does, and one of several that are alike.
    """

    rule: str
    name: str
    severity: Severity
    verdict: Verdict | None
    one_line: str = field(name="message")
    function: str | None
    file: Annotated[str | None, about("The file that was linted; <module> for a module in memory.")]
    line: int | None
    column: int | None
    end_line: int | None
    end_column: Annotated[int | None, about("The column behind the last character.")]
    path: str | None
    counterexample: Binding | None
    smallest: bool | None
    precondition: str | None
    reason: str | None
    guarded: bool
    places: tuple[PlaceEntry, ...]
    fix: FixOffer | None


class Summary(Document, frozen=True, kw_only=True):
    """Counts of functions, of constraints by verdict and by who decided, and of findings of the baseline.

    `guarded`: run-time checks that the module makes itself; `unknown`: those for want of a decision;
    `data_dependent`: indices in kernels that depend on data, and are not judged.  `known`: findings of the
    baseline, which are left out; `stale`: those that are gone.
    """

    functions: Count
    constraints: Count
    always_valid: Count
    always_invalid: Count
    runtime_check: Count
    guarded: Count
    unknown: Count
    data_dependent: Count
    known: Count
    stale: Count
    by_solver: dict[Literal["cascade", "z3"], Count]
    seconds: float


class LintDocument(Document, frozen=True, kw_only=True, tag_field="version", tag=1):
    """The report of `symalloc lint`."""

    files: tuple[str, ...]
    diagnostics: tuple[FindingEntry, ...]
    summary: Summary


def render_json(report: Report) -> str:
    """Render the report as one JSON document."""
    seconds = round(report.summary.seconds, 6)
    return as_json(
        LintDocument(
            files=tuple(report.files),
            diagnostics=tuple(_finding(found, report) for found in report),
            summary=record(Summary, report.summary, report, seconds=seconds),
        )
    )


def _finding(d: Diagnostic, report: Report) -> FindingEntry:
    return record(
        FindingEntry,
        report.file_span(d),
        d,
        smallest=None if d.counterexample is None else d.smallest,
        places=[
            record(PlaceEntry, None if one.span is None or report.printed_after(one.span) else one.span, one)
            for one in d.dependents
        ],
    )


# -- SARIF -------------------------------------------------------------------------------------------------

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "symallocFinding/v1"


def render_sarif(report: Report, *, rules: Sequence[Rule] = (), root: Path | None = None) -> str:
    """Render the report as one SARIF log; paths below `root` (default: the working folder) are relative."""
    run = _SarifRun(report, sorted(rules, key=lambda rule: rule.id), (root or Path.cwd()).resolve()).build()
    return as_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


@dataclass(frozen=True, slots=True)
class _SarifRun:
    report: Report
    rules: Sequence[Rule]
    root: Path

    def build(self) -> dict[str, Any]:
        driver = {
            "name": "symalloc",
            "version": metadata.version("symalloc"),
            "rules": [_rule(rule) for rule in self.rules],
        }
        counts = {"knownFindings": self.report.known, "staleFindings": self.report.stale}
        keyed = zip(self.report, fingerprints(self.report), strict=True)
        return {
            "tool": {"driver": driver},
            "columnKind": "unicodeCodePoints",
            "artifacts": [{"location": self.artifact(f)} for f in self.report.files if _is_file(f)],
            "properties": {name: count for name, count in counts.items() if count},
            "results": [self.result(d, key) for d, key in keyed],
        }

    def result(self, d: Diagnostic, fingerprint: str) -> dict[str, Any]:
        path = f"This is so when {d.path}" if d.path else ""
        found = {
            "ruleId": d.rule,
            "ruleIndex": next((i for i, rule in enumerate(self.rules) if rule.id == d.rule), None),
            "level": d.severity.value,
            "message": {"text": ". ".join(part for part in (d.one_line, path, *d.notes) if part)},
            "locations": [self.location(d)],
            "partialFingerprints": {FINGERPRINT: fingerprint},
            "relatedLocations": [*self.related(d)],
            "fixes": [self.fix(fix) for fix in d.fixes],
            "properties": _properties(d),
        }
        return {name: value for name, value in found.items() if value not in (None, [])}

    def location(self, d: Diagnostic) -> dict[str, Any]:
        span = self.report.file_span(d)
        file = span.file if span else d.file
        physical = {"physicalLocation": self.place(file, span)} if file and _is_file(file) else {}
        return physical | _logical(d, d.function)

    def related(self, d: Diagnostic) -> Iterator[dict[str, Any]]:
        """The further places of a finding; those in no file by the functions that they are in."""
        said: list[tuple[Span | None, str, str]] = [(label.span, label.text, "") for label in d.labels]
        said += [(one.span, one.said, one.function) for one in d.dependents]
        for span, text, function in said:
            in_file = span is not None and not self.report.printed_after(span)
            where = {"physicalLocation": self.place(span.file, span)} if span and in_file else {}
            if where or function:
                yield {**where, **_logical(d, function), "message": {"text": text}}

    def place(self, file: str, span: Span | None) -> dict[str, Any]:
        region = {} if span is None else {"region": _region(span)}
        return {"artifactLocation": self.artifact(file), **region}

    def fix(self, fix: Fix) -> dict[str, Any]:
        changes: dict[str, list[dict[str, Any]]] = {}
        for edit in fix.edits:
            replacement = {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.text}}
            changes.setdefault(edit.span.file, []).append(replacement)
        written = [
            {"artifactLocation": self.artifact(file), "replacements": replacements}
            for file, replacements in changes.items()
        ]
        return {"description": {"text": fix.title}, "artifactChanges": written}

    def artifact(self, file: str) -> dict[str, str]:
        resolved = Path(file).resolve()
        if resolved.is_relative_to(self.root):
            return {"uri": quote(resolved.relative_to(self.root).as_posix()), "uriBaseId": "%SRCROOT%"}
        return {"uri": resolved.as_uri()}


def _logical(d: Diagnostic, function: str) -> dict[str, Any]:
    if not function:
        return {}
    name = f"{d.module}.{function}" if d.module else function
    return {"logicalLocations": [{"name": function, "fullyQualifiedName": name, "kind": "function"}]}


def _is_file(name: str) -> bool:
    """False for the name of a module in memory (`<module>`)."""
    return not name.startswith("<")


def _rule(rule: Rule) -> dict[str, Any]:
    summary = rule.doc.strip().split("\n\n")[0]
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.name.replace("-", " ")},
        "fullDescription": {"text": " ".join(summary.split()) or rule.name},
        "help": {"text": rule.doc.strip() or rule.name},
        "defaultConfiguration": {"level": rule.severity},
    }


def _properties(d: Diagnostic) -> dict[str, Any]:
    found = {
        "verdict": d.verdict,
        "counterexample": d.counterexample,
        "smallest": None if d.counterexample is None else d.smallest,
        "precondition": d.precondition,
        "path": d.path or None,
        "reason": d.reason,
        "introducedBy": d.stage,
    }
    return {key: value for key, value in found.items() if value is not None} | {"guarded": d.guarded}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }


# -- one line a finding ------------------------------------------------------------------------------------


def render_concise(report: Report) -> str:
    """Render all findings, each as `file:line:column: SYM101 message`; empty where there are none."""
    lines = []
    for d in report:
        span = report.file_span(d)
        place = f"{span.file}:{span.line}:{span.column}" if span else d.file or d.module or "module"
        where = f" (in `{d.function}`)" if span is None and d.function else ""
        lines.append(visible(f"{place}: {d.rule} {d.one_line}{where}") + "\n")
    return "".join(lines)


def render_github(report: Report) -> str:
    """Render all findings, one workflow command each; GitHub annotates the pull request with them.

    What the baseline left out is a notice without a place.
    """
    known = ", ".join(report.known_remarks)
    notice = f"::notice title=symalloc baseline::{_data(known)}\n" if known else ""
    lines = []
    for d in report:
        escaped = {
            k: _data(v).replace(":", "%3A").replace(",", "%2C") for k, v in _annotated(d, report).items()
        }
        kind = "notice" if d.severity is Severity.NOTE else d.severity.value
        properties = ",".join(f"{name}={value}" for name, value in escaped.items())
        lines.append(f"::{kind} {properties}::{_data(body_of(d))}\n")
    return "".join(lines) + notice


def _annotated(diagnostic: Diagnostic, report: Report) -> dict[str, str]:
    span = report.file_span(diagnostic)
    file = span.file if span else diagnostic.file
    properties = {"file": file} if file else {}
    if span:
        properties |= {"line": str(span.line), "col": str(span.column), "endLine": str(span.end_line)}
        if span.end_line == span.line:
            properties["endColumn"] = str(span.end_column)
    return properties | {"title": diagnostic.rule}


def body_of(diagnostic: Diagnostic, *, help_too: bool = False) -> str:
    """The message of a finding, and on further lines its path, counterexample and precondition."""
    lines = [diagnostic.one_line]
    if diagnostic.path:
        lines.append(f"on paths where {diagnostic.path}")
    if diagnostic.counterexample:
        consequence = f" -> {diagnostic.consequence}" if diagnostic.consequence else ""
        binding = binding_text(diagnostic.counterexample)
        lines.append(f"{counterexample_title(diagnostic.smallest)}: {binding}{consequence}")
    if diagnostic.precondition:
        lines.append(f"holds only when: {diagnostic.precondition}")
    if help_too and diagnostic.help:
        lines.append(f"help: {diagnostic.help}")
    return "\n".join(map(visible, lines))


def _data(text: str) -> str:
    """Escape what would end or nest a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


_PLAIN: Mapping[str, Callable[[Report], str]] = {
    "concise": render_concise,
    "github": render_github,
    "json": render_json,
}
"""The formats without options."""
