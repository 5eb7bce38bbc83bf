from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from symalloc.errors import UsageError
from symalloc.linter.diagnostic import CANNOT_BE_READ, Report, Severity
from symalloc.linter.suppressions import Baseline, fingerprints
from symalloc.prover.domain import Verdict
from tests.report import samples

RULES = frozenset({"SYM101", CANNOT_BE_READ})
FINDING = replace(samples.OUTGROWN, file=samples.FILE)


def _baseline(report: Report, folder: Path) -> Baseline:
    """The baseline of `report`, written and read again."""
    file = folder / "baseline.json"
    file.write_text(Baseline.of(report, file).text())
    return Baseline.load(file)


def _report(*findings: object, files: tuple[str, ...] = (samples.FILE,)) -> Report:
    return replace(samples.report(*findings), files=files)


def test_known_findings_are_left_out_and_new_ones_shown(tmp_path: Path) -> None:
    baseline = _baseline(_report(FINDING), tmp_path)
    new = replace(FINDING, function="other")
    left = baseline.applied(_report(FINDING, new, FINDING), RULES)
    assert [d.function for d in left] == ["other", FINDING.function]  # the second equal one is new, too
    assert (left.known, left.stale) == (1, 0)


@pytest.mark.parametrize("worse", ["severity", "verdict"])
def test_what_got_worse_is_shown(tmp_path: Path, worse: str) -> None:
    before, after = {
        "severity": (replace(FINDING, severity=Severity.NOTE), FINDING),
        "verdict": (FINDING, replace(FINDING, verdict=Verdict.ALWAYS_INVALID)),
    }[worse]
    left = _baseline(_report(before), tmp_path).applied(_report(after), RULES)
    assert (len(left), left.known, left.stale) == (1, 0, 0)
    assert not _baseline(_report(after), tmp_path).applied(_report(before), RULES).diagnostics


def test_an_equal_finding_of_another_file_is_new(tmp_path: Path) -> None:
    baseline = _baseline(_report(FINDING), tmp_path)
    assert len(baseline.applied(_report(replace(FINDING, file="other.py")), RULES)) == 1


def test_findings_that_are_gone_are_counted_where_they_were_looked_for(tmp_path: Path) -> None:
    file = str(tmp_path / "model.py")
    Path(file).touch()
    baseline = _baseline(_report(replace(FINDING, file=file), files=(file,)), tmp_path)
    assert baseline.applied(_report(files=(file,)), RULES).stale == 1
    assert baseline.applied(_report(files=(file,)), frozenset({"SYM201"})).stale == 0
    assert baseline.applied(_report(files=("other.py",)), RULES, lambda path: True).stale == 0
    assert (
        baseline.applied(_report(files=("other.py",)), RULES, lambda path: False).stale == 1
    )  # no model any more
    called = _baseline(_report(replace(FINDING, file=f"{file}:make"), files=(file,)), tmp_path)
    assert called.applied(_report(files=("other.py",)), RULES, lambda path: False).stale == 0
    unread = replace(FINDING, rule=CANNOT_BE_READ, file=file)
    assert baseline.applied(_report(unread, files=(file,)), RULES).stale == 0
    Path(file).unlink()
    assert baseline.applied(_report(files=("other.py",)), RULES).stale == 1


def test_what_could_not_be_read_is_never_known(tmp_path: Path) -> None:
    unread = replace(FINDING, rule=CANNOT_BE_READ)
    with pytest.raises(UsageError, match=r"no baseline written .* could not be read in full"):
        Baseline.of(_report(FINDING, unread), tmp_path / "baseline.json")
    honest = _baseline(_report(FINDING), tmp_path)
    ((file, key),) = honest.known
    (forged,) = fingerprints(_report(unread))
    known = {
        (file, forged): structs.replace(honest.known[file, key], rule=CANNOT_BE_READ, fingerprint=forged)
    }
    assert len(replace(honest, known=known).applied(_report(unread), RULES)) == 1


def test_the_text_does_not_depend_on_the_order_and_has_a_line_for_each(tmp_path: Path) -> None:
    findings = [replace(FINDING, file=file, function=f) for file in ("b.py", "a.py") for f in ("g", "f")]
    file = tmp_path / "baseline.json"
    text = Baseline.of(_report(*findings), file).text()
    assert text == Baseline.of(_report(*reversed(findings)), file).text()
    assert [json.loads(line.rstrip(","))["function"] for line in text.splitlines()[1:-1]] == list("fgfg")
    assert json.loads(Baseline.of(_report(), file).text()) == {"version": 1, "findings": []}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "not a file that"),
        (b"[]", "not a file that"),
        (b'{"version": 1}', "not a file that"),
        (b'{"version": true, "findings": []}', "not a file that"),
        (b'{"version": 2, "findings": []}', r"Invalid value 2 - at `\$.version`"),
        (b'{"version": 1, "findings": [{}]}', r"wrote: .* at `\$.findings\[0\]`"),
        (b'{"version": 1, "findings": [3]}', r"wrote: .* at `\$.findings\[0\]`"),
    ],
)
def test_what_is_no_baseline_is_refused(tmp_path: Path, text: bytes | None, words: str) -> None:
    file = tmp_path / "baseline.json"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(UsageError, match=words) as caught:
        Baseline.load(file)
    assert str(file) in str(caught.value)
