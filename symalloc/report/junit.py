"""The report as JUnit XML, which CI servers show: a suite for each file, a failed case for each finding."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from symalloc.linter.diagnostic import CANNOT_BE_READ, Diagnostic, Report, Severity
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
