"""SARIF 2.1.0 (OASIS), for code scanning: one run, rules with help, regions, fixes, stable fingerprints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from symalloc.linter.baseline import fingerprints
from symalloc.linter.diagnostic import Diagnostic, Fix, Report, Severity
from symalloc.program.span import Span

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
