"""Comments that allow findings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from symalloc.linter.diagnostic import Diagnostic, parse_user_script
from symalloc.linter.fixes import apply_edits
from symalloc.linter.suppressions import Suppression, allow_finding, find_suppressions
from symalloc.program.span import Source, Span
from tests.report import samples

FILE = "model.py"
MODULE = '''\
# symalloc: allow-file(SYM205)
@I.ir_module
class Module:
    # symalloc: allow(SYM203)
    @R.function
    def main(x: R.Tensor(("m",), "float32")):
        """# symalloc: allow(SYM999) in a string is no comment"""
        a = f(x)  # symalloc: allow(SYM101, use-after-kill) -- m is at most 4
        # symalloc: allow(SYM102)
        # another comment between
        b = g(
            x,
            a,
        )
        c = h(
            b,  # symalloc: allow(SYM103)
        )
        return c

    @R.function
    def other(x):
        return x
'''


def _find(text: str) -> tuple[Suppression, ...]:
    return find_suppressions(Source(file=FILE, text=text))


def _at(line: int | None, rule: str = "SYM101", function: str = "main", file: str = FILE) -> Diagnostic:
    span = None if line is None else Span(file, line, 9, line, 12)
    return replace(samples.PLAIN, rule=rule, module="Module", function=function, file=FILE, span=span)


def _lines_allowed(key: str) -> list[int]:
    """The lines of MODULE on which a finding of rule `key` is allowed."""
    (suppression,) = [s for s in _find(MODULE) if s.key == key]
    return [n for n in range(1, 23) if suppression.covers(_at(n, key), frozenset((key,)))]


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        ("SYM205", list(range(1, 23))),
        ("SYM203", list(range(5, 19))),
        ("SYM101", [8]),
        ("use-after-kill", [8]),
        ("SYM102", [11, 12, 13, 14]),
        ("SYM103", [15, 16, 17]),
    ],
)
def test_what_a_comment_covers(key: str, lines: list[int]) -> None:
    assert _lines_allowed(key) == lines


def test_strings_are_no_comments() -> None:
    assert "SYM999" not in {s.key for s in _find(MODULE)}


def test_spans_are_those_of_the_keys() -> None:
    lines = MODULE.split("\n")
    for found in _find(MODULE):
        assert lines[found.span.line - 1][found.span.column - 1 : found.span.end_column - 1] == found.key


def test_a_function_is_covered_by_name_where_a_finding_has_no_place() -> None:
    allowed, line_only = (next(s for s in _find(MODULE) if s.key == key) for key in ("SYM203", "SYM101"))
    rules = frozenset(("SYM203",))
    assert allowed.covers(_at(None, "SYM203"), rules)
    assert allowed.covers(_at(3, "SYM203", file="<printed>"), rules)
    assert not allowed.covers(_at(3, "SYM203", "other", file="<printed>"), rules)
    assert not line_only.covers(_at(8, file="<printed>"), frozenset(("SYM101",)))


def test_a_class_is_covered_by_a_comment_before_its_decorator() -> None:
    text = "# symalloc: allow(SYM101)\n@I.ir_module\nclass Module:\n    def f():\n        pass\n\nx = 1\n"
    (allowed,) = _find(text)
    assert (allowed.first, allowed.last, allowed.scope) == (2, 5, "Module")


@pytest.mark.parametrize(
    ("comment", "problem"),
    [
        ("# symalloc: allow SYM101", "no rule is named"),
        ("# symalloc: allow()", "no rule is named"),
        ("# symalloc: ignore(SYM101)", "`ignore` is no symalloc comment"),
        ("# symalloc:", "nothing is allowed here"),
        ("# symalloc: allow(SYM101) because", "behind `--`"),
    ],
)
def test_comments_that_are_wrong_say_so(comment: str, problem: str) -> None:
    (found,) = _find(f"x = 1  {comment}\n")
    assert problem in (found.problem or "")
    assert not found.covers(_at(1), frozenset(("SYM101",)))


def test_a_comment_that_nothing_follows_is_wrong() -> None:
    (found,) = _find("x = 1\n# symalloc: allow(SYM101)\n")
    assert found.problem == "no code follows this comment"


def test_text_that_is_no_python_has_none() -> None:
    assert _find("def (:  # symalloc: allow(SYM101)\n") == ()


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


def _allowed(finding: Diagnostic, text: str = TEXT) -> str | None:
    script = parse_user_script(Source(file=FILE, text=text))
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
    text = _allowed(_at(line))
    assert text is not None
    assert written in text
    moved = text.count("\n") - TEXT.count("\n") if line == 7 else 0
    finding = _at(line and line + moved)
    assert any(s.covers(finding, frozenset({"SYM101"})) for s in _find(text) if s.key == "SYM101")


def test_what_no_comment_can_allow_is_not_offered() -> None:
    assert _allowed(_at(5, rule="SYM902")) is None
    assert _allowed(_at(8, rule="SYM901")) is None
    assert _allowed(_at(None), "x = 1\n") is None
