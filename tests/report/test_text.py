from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from symalloc.linter.diagnostic import CANNOT_BE_READ, LintSummary, Report
from symalloc.program.span import Source
from symalloc.report.text import render_summary, render_text
from tests.report import samples

Golden = Callable[[str, str], None]


UNREADABLE = replace(samples.PLAIN, rule=CANNOT_BE_READ)
NOTHING = LintSummary()


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (
            replace(samples.report(UNREADABLE, UNREADABLE), summary=NOTHING),
            "nothing verified: 1 file could not be read.",
        ),
        (
            replace(samples.report(UNREADABLE, replace(UNREADABLE, file="b.py")), summary=NOTHING, skipped=1),
            "nothing verified: 2 files could not be read. 1 file without Relax modules skipped",
        ),
        (
            replace(samples.report(UNREADABLE), summary=LintSummary(functions=1), skipped=3),
            "0 constraints: 0 always valid, 0 always invalid, 0 run-time checks (0 guarded), 0 unknown. "
            "1 file could not be read in full, 3 files without Relax modules skipped",
        ),
    ],
)
def test_the_last_line_says_what_was_not_verified(report: Report, text: str) -> None:
    assert render_summary(report) == text


def test_whole_report(golden: Golden) -> None:
    golden("report.txt", render_text(samples.report(*samples.ALL)))


def test_a_declared_bound_is_one_line() -> None:
    lines = render_text(samples.report(samples.BOUND), quiet=True).splitlines()
    assert lines == [f"warning[SYM401]: {samples.BOUND.message} --> {samples.FILE}:10:17", ""]


def test_narrow_terminal(golden: Golden) -> None:
    golden("report-80.txt", render_text(samples.report(*samples.ALL), width=80))


def test_colours(golden: Golden) -> None:
    golden("report-colour.txt", render_text(samples.report(samples.OUTGROWN, samples.WIDE), colour=True))


def test_carets_stand_below_what_they_mark() -> None:
    for finding, marked in ((samples.OUTGROWN, "R.memory.alloc_tensor"), (samples.TABBED, "R.call_packed")):
        lines = render_text(samples.report(finding)).split("\n")
        carets = next(i for i, line in enumerate(lines) if "^" in line)
        assert lines[carets - 1].index(marked) == lines[carets].index("^")


def test_no_terminal_escape_gets_through() -> None:
    text = render_text(samples.report(samples.HOSTILE))
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "\\x1b[31mred" in text


def test_no_escape_in_the_source_gets_through() -> None:
    source = Source(file=samples.FILE, text="x = 1  # \x1b[31m \u202e \x07\n")
    finding = replace(samples.PLAIN, span=samples.span(10, "R.memory")._replace(line=1, end_line=1))
    text = render_text(replace(samples.report(finding), sources={samples.FILE: source}))
    assert "x = 1  # \\x1b[31m \\u202e \\x07" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


def test_endless_lines_are_cut_without_a_terminal_too() -> None:
    source = Source(file=samples.FILE, text=f"x = {'1' * 100_000}\n")
    place = samples.span(10, "R.memory")._replace(line=1, column=5, end_line=1, end_column=100_005)
    finding = replace(samples.PLAIN, span=place)
    text = render_text(replace(samples.report(finding), sources={samples.FILE: source}))
    assert max(map(len, text.split("\n"))) <= 240


def test_summary_counts_in_the_singular() -> None:
    one = LintSummary(runtime_check=1)
    report = replace(samples.report(samples.OUTGROWN), summary=one)
    assert render_summary(report) == (
        "1 constraint: 0 always valid, 0 always invalid, 1 run-time check (0 guarded), 0 unknown. "
        "1 fixable with --fix"
    )


def test_summary_names_unsafe_fixes() -> None:
    unsafe = replace(samples.PLAIN, fixes=(samples.GUARD,))
    assert render_summary(samples.report(unsafe)).endswith("1 with --fix --unsafe-fixes")
    both = samples.report(samples.OUTGROWN, unsafe)
    assert render_summary(both).endswith("1 fixable with --fix, 1 more with --fix --unsafe-fixes")
