"""The comment that allows a finding: where it goes, and that it does allow."""

from __future__ import annotations

import pytest

from symalloc.linter.diagnostic import Diagnostic, Severity, parse_user_script
from symalloc.linter.fixes import apply_edits
from symalloc.linter.suppressions import allow_finding, find_suppressions
from symalloc.program.span import Source, Span

TEXT = '''\
@I.ir_module
class Module:
    @R.function
    def main(x):
        a = f(1, # why
              2)
        b = f(1)  # noqa
        c = f(1)  # symalloc: allow(SYM203) -- known
        d = """# 🧮
        """ + f(2)
        return d
'''


def _finding(line: int | None, column: int = 9, rule: str = "SYM101") -> Diagnostic:
    span = None if line is None else Span("m.py", line, column, line, column + 1)
    return Diagnostic(
        rule=rule,
        name="",
        severity=Severity.ERROR,
        verdict=None,
        message="",
        module="Module",
        function="main",
        span=span,
    )


def _allowed(finding: Diagnostic, text: str = TEXT) -> str | None:
    script = parse_user_script(Source(file="m.py", text=text))
    fix = allow_finding(finding, script) if script else None
    return apply_edits(text, fix.edits) if fix else None


@pytest.mark.parametrize(
    ("line", "written"),
    [
        (5, "              2)  # symalloc: allow(SYM101)\n"),
        (6, "              2)  # symalloc: allow(SYM101)\n"),
        (7, "        # symalloc: allow(SYM101)\n        b = f(1)  # noqa\n"),
        (8, "        c = f(1)  # symalloc: allow(SYM203, SYM101) -- known\n"),
        (9, '        """ + f(2)  # symalloc: allow(SYM101)\n'),
        (4, "    def main(x):  # symalloc: allow(SYM101)\n"),
        (None, "    # symalloc: allow(SYM101)\n    @R.function\n"),
    ],
)
def test_the_comment_covers_the_finding(line: int | None, written: str) -> None:
    text = _allowed(_finding(line))
    assert text is not None
    assert written in text
    moved = text.count("\n") - TEXT.count("\n") if line == 7 else 0
    suppressions = find_suppressions(Source(file="m.py", text=text))
    finding = _finding(line and line + moved)
    assert any(s.covers(finding, frozenset({"SYM101"})) for s in suppressions if s.key == "SYM101")


def test_what_no_comment_can_allow_is_not_offered() -> None:
    assert _allowed(_finding(5, rule="SYM902")) is None
    assert _allowed(_finding(8, rule="SYM901")) is None
    assert _allowed(_finding(None), "x = 1\n") is None
