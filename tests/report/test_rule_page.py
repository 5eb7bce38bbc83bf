from __future__ import annotations

import pytest
from msgspec.structs import replace

from symalloc.report.text import render_rule_page, render_rule_table, severity_text
from symalloc.rulebook.rule import Rulebook, load_rules


def test_prose_is_wrapped_to_the_terminal_and_code_is_not() -> None:
    page = render_rule_page(load_rules().get("SYM101"), width=60)
    prose = page.split("Found:")[0].splitlines()[4:]
    assert max(map(len, prose)) <= 60
    assert any(len(line) > 100 for line in page.splitlines())


def test_colour_is_only_colour() -> None:
    rule = load_rules().get("SYM203")
    plain, coloured = render_rule_page(rule), render_rule_page(rule, colour=True)
    assert "\x1b[" in coloured
    assert "\x1b[" not in plain


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("SYM101", "error"),
        ("SYM302", "error/warning"),
        ("SYM301", "error/-"),
        ("SYM205", "note"),
        ("SYM109", "error/warning/note"),
    ],
)
def test_severities_are_named_where_they_differ(rule: str, text: str) -> None:
    assert severity_text(load_rules().get(rule)) == text


def test_a_reference_that_is_no_issue_is_shown_as_it_is() -> None:
    rule = replace(load_rules().get("SYM102"), references=("https://example.org/paper",))
    assert "See https://example.org/paper\n" in render_rule_page(rule)


def test_a_table_fits_the_terminal() -> None:
    book = Rulebook(rules=load_rules().rules[:3])
    lines = render_rule_table(book, width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(render_rule_table(book).splitlines()) == 3
