"""The formats of findings by name, SARIF and JUnit among them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from symalloc.linter.baseline import fingerprints
from symalloc.linter.diagnostic import CANNOT_BE_READ, Diagnostic, Fix, Report, Severity
from symalloc.program.span import Span
from symalloc.report.cells import visible
from symalloc.report.text import text_of


def render_junit(report: Report) -> str:
    """Render the report; notes are cases that pass, a file without findings is one, too.

    A file that cannot be read is an error.  Findings that the baseline left out are a suite without cases.
    """
    root = Element("testsuites", name="symalloc")
    for file in dict.fromkeys((*report.files, *(_file(d) for d in report))):
        _suite(root, file, [d for d in report if _file(d) == file], report)
    if report.known_remarks:
        _baseline(root, report)
    for kind in ("tests", "failures", "errors"):
        root.set(kind, str(sum(int(suite.get(kind, 0)) for suite in root)))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _suite(root: Element, file: str, findings: list[Diagnostic], report: Report) -> None:
    suite = SubElement(root, "testsuite", name=_text(file))
    for finding in findings:
        _case(suite, file, finding, report)
    if not findings:
        SubElement(suite, "testcase", classname=_text(file), name="memory")
    for kind, found in (("tests", "testcase"), ("failures", ".//failure"), ("errors", ".//error")):
        suite.set(kind, str(len(suite.findall(found))))


def _baseline(root: Element, report: Report) -> None:
    suite = SubElement(root, "testsuite", name="baseline", tests="0", failures="0", errors="0")
    properties = SubElement(suite, "properties")
    for name, count in (("known", report.known), ("stale", report.stale)):
        SubElement(properties, "property", name=name, value=str(count))


def _case(suite: Element, file: str, finding: Diagnostic, report: Report) -> None:
    span = report.file_span(finding)
    where = f":{span.line}:{span.column}" if span else ""
    inside = f" in {finding.function}" if finding.function else ""
    case = SubElement(
        suite,
        "testcase",
        classname=_text(file),
        name=_text(f"{finding.rule}{where}{inside}"),
        file=_text(file),
    )
    if span:
        case.set("line", str(span.line))
    text = _text(text_of(finding, report).plain.rstrip())
    if finding.severity is Severity.NOTE:
        SubElement(case, "system-out").text = text
        return
    kind = "error" if finding.rule == CANNOT_BE_READ else "failure"
    SubElement(case, kind, message=_text(finding.one_line), type=finding.severity.value).text = text


def _file(finding: Diagnostic) -> str:
    return finding.file or finding.module or "module"


def _text(text: str) -> str:
    """`text` without the control characters that XML cannot hold."""
    return "\n".join(visible(line) for line in text.split("\n"))


if TYPE_CHECKING:
    from symalloc.rulebook.rule import Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "symallocFinding/v1"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


def render_sarif(report: Report, *, rules: Sequence[Rule] = (), root: Path | None = None) -> str:
    """Render the report as one SARIF log; paths below `root` (default: the working folder) are relative."""
    run = _SarifRun(report, rules, (root or Path.cwd()).resolve()).build()
    return (
        json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)
        + "\n"
    )


class _SarifRun:
    def __init__(self, report: Report, rules: Sequence[Rule], root: Path) -> None:
        self.report, self.root = report, root
        self.rules = sorted(rules, key=lambda rule: rule.id)
        self.index = {rule.id: i for i, rule in enumerate(self.rules)}

    def build(self) -> dict[str, Any]:
        driver = {
            "name": "symalloc",
            "version": metadata.version("symalloc"),
            "rules": [_rule(rule) for rule in self.rules],
        }
        counts = {"knownFindings": self.report.known, "staleFindings": self.report.stale}
        return {
            "tool": {"driver": driver},
            "columnKind": "unicodeCodePoints",
            "artifacts": [{"location": self.artifact(f)} for f in self.report.files if _is_file(f)],
            "properties": {name: count for name, count in counts.items() if count},
            "results": [
                self.result(d, key) for d, key in zip(self.report, fingerprints(self.report), strict=True)
            ],
        }

    def result(self, d: Diagnostic, fingerprint: str) -> dict[str, Any]:
        result: dict[str, Any] = {
            "ruleId": d.rule,
            "level": _LEVELS[d.severity],
            "message": {"text": _message(d)},
            "locations": [self.location(d)],
            "partialFingerprints": {FINGERPRINT: fingerprint},
            "properties": _properties(d),
        }
        if d.rule in self.index:
            result["ruleIndex"] = self.index[d.rule]
        related = [
            self.related(label.span, label.text)
            for label in d.labels
            if not self.report.printed_after(label.span)
        ]
        related += [
            self.related(one.span, f"{one.rule}: {one.constraint}" if one.constraint else one.rule)
            for one in d.dependents
            if one.span and not self.report.printed_after(one.span)
        ]
        if related:
            result["relatedLocations"] = related
        if d.fixes:
            result["fixes"] = [self.fix(fix) for fix in d.fixes]
        return result

    def location(self, d: Diagnostic) -> dict[str, Any]:
        span = self.report.file_span(d)
        file = span.file if span else d.file
        location: dict[str, Any] = {}
        if file and _is_file(file):
            location["physicalLocation"] = {"artifactLocation": self.artifact(file)}
            if span:
                location["physicalLocation"]["region"] = _region(span)
        if d.function:
            name = f"{d.module}.{d.function}" if d.module else d.function
            logical = {"name": d.function, "fullyQualifiedName": name, "kind": "function"}
            location["logicalLocations"] = [logical]
        return location

    def related(self, span: Span, text: str) -> dict[str, Any]:
        physical = {"artifactLocation": self.artifact(span.file), "region": _region(span)}
        return {"physicalLocation": physical, "message": {"text": text}}

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
        path = Path(file)
        resolved = path.resolve()
        if resolved.is_relative_to(self.root):
            return {"uri": quote(resolved.relative_to(self.root).as_posix()), "uriBaseId": "%SRCROOT%"}
        return {"uri": resolved.as_uri()}


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
        "defaultConfiguration": {"level": _LEVELS[Severity(rule.severity)]},
    }


def _message(d: Diagnostic) -> str:
    path = f"This is so when {d.path}" if d.path else ""
    return ". ".join(part for part in (d.one_line, path, *d.notes) if part)


def _properties(d: Diagnostic) -> dict[str, Any]:
    found = {
        "verdict": d.verdict.value if d.verdict else None,
        "counterexample": None if d.counterexample is None else dict(d.counterexample),
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


if TYPE_CHECKING:
    from symalloc.rulebook.rule import Rule

FORMATS = ("text", "concise", "json", "sarif", "github", "junit")


def render(report: Report, form: str, *, rules: Sequence[Rule] = (), **text_options: Any) -> str:
    """Render `report` in one of `FORMATS`; `rules` are for SARIF, `text_options` those of `render_text`."""
    match form:
        case "text":
            from symalloc.report.text import render_text

            return render_text(report, **text_options)
        case "json":
            from symalloc.report.lint_json import render_json

            return render_json(report)
        case "sarif":
            return render_sarif(report, rules=rules)
        case "junit":
            return render_junit(report)
        case "concise" | "github":
            from symalloc.report.lines import render_concise, render_github

            return render_concise(report) if form == "concise" else render_github(report)
    raise ValueError(f"unknown format `{form}`")
