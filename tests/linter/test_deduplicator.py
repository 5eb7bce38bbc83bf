"""Findings that later stages repeat under other names."""

from __future__ import annotations

import pytest

from symalloc.linter.diagnostic import Diagnostic, Severity
from symalloc.linter.linter import fresh_findings
from symalloc.program.span import Source, Span

SPAN = Span(file="m.py", line=2, column=5, end_line=2, end_column=9)
FILE = {"m.py": Source(file="m.py", text="a\nb\n")}
PRINTED = {"m.py": Source(file="m.py", text="a\nb\n", origin="Later")}


def finding(message: str, **fields: object) -> Diagnostic:
    given = {"module": "M", "function": "main", **fields}
    return Diagnostic(  # type: ignore[arg-type]
        rule="SYM107",
        name="view-exceeds-source",
        severity=Severity.ERROR,
        verdict=None,
        message=message,
        **given,
    )


def stages(*found: list[Diagnostic], sources: dict[str, Source] = FILE) -> list[list[str]]:
    fresh = (fresh_findings(stage, found[:number], sources) for number, stage in enumerate(found))
    return [[d.message for d in stage] for stage in fresh]


def test_a_renamed_operand_makes_no_new_finding() -> None:
    """KillAfterLastUse calls `a` by the name of what it stands for; the view of it is the same."""
    before = finding("view `v` of `a`", binds="v", constraint="n <= m")
    after = finding("view `v` of `alloc`", binds="v", constraint="n <= m")
    assert stages([before], [after]) == [["view `v` of `a`"], []]


def test_renamed_variables_are_known_by_their_constraint() -> None:
    before = finding("dimension of `y`", binds="y", constraint="n >= 1")
    after = finding("dimension of `alloc`", binds="alloc", constraint="n >= 1")
    assert stages([before], [after], [after]) == [["dimension of `y`"], [], []]


@pytest.mark.parametrize(
    "other",
    [
        finding("new", binds="v", constraint="n <= k"),
        finding("new", binds="v", constraint="n <= m", function="other"),
        finding("new", binds="v", constraint="n <= m", module="N"),
        finding("new", binds="v"),
    ],
)
def test_what_differs_is_new(other: Diagnostic) -> None:
    before = finding("old", binds="v", constraint="n <= m")
    assert stages([before], [other]) == [["old"], ["new"]]


def test_more_of_a_constraint_than_before_is_new() -> None:
    before = finding("old", binds="v", constraint="n <= m")
    renamed = finding("renamed", binds="w", constraint="n <= m")
    added = finding("added", binds="u", constraint="n <= m")
    assert stages([before], [before, added]) == [["old"], ["added"]]
    assert stages([before], [renamed, added]) == [["old"], ["added"]]
    assert stages([before], [], [renamed, added]) == [["old"], [], ["added"]]


def test_lifetimes_are_told_apart_by_message_or_place() -> None:
    before, other = finding("`a` after its kill", binds="b"), finding("`c` after its kill", binds="b")
    assert stages([before], [before, other]) == [["`a` after its kill"], ["`c` after its kill"]]
    here, there = finding("here", span=SPAN), finding("there", span=SPAN)
    assert stages([here], [there]) == [["here"], []]
    assert stages([here], [there], sources=PRINTED) == [["here"], ["there"]]
