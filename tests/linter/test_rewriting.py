from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symalloc.linter.diagnostic import Diagnostic, Fix, Severity, TextEdit
from symalloc.linter.fixes import apply_edits, improves, rewrite
from symalloc.program.span import Span


def _span(line: int, column: int, end_line: int, end_column: int) -> Span:
    return Span(file="f.py", line=line, column=column, end_line=end_line, end_column=end_column)


def _edit(line: int, column: int, end_column: int, text: str) -> TextEdit:
    return TextEdit(span=_span(line, column, line, end_column), text=text)


def _finding(
    rule: str, *edits: TextEdit, safe: bool = True, severity: Severity = Severity.ERROR
) -> Diagnostic:
    fixes = (Fix(title="t", edits=edits, safe=safe),) if edits else ()
    return Diagnostic(rule=rule, name="n", severity=severity, verdict=None, message="m", fixes=fixes)


def test_edits_replace_insert_and_delete() -> None:
    text = "one\ntwo\nthree\n"
    edits = [_edit(1, 1, 4, "ONE"), _edit(2, 1, 1, "new\n"), TextEdit(span=_span(3, 1, 4, 1), text="")]
    assert apply_edits(text, edits) == "ONE\nnew\ntwo\n"


def test_line_ends_are_kept() -> None:
    assert apply_edits("a\r\nb\r\n", [_edit(2, 1, 1, "x\n")]) == "a\r\nx\r\nb\r\n"
    assert apply_edits("a\rb\n", [_edit(2, 1, 2, "c")]) == "a\rc\n"


def test_a_last_line_without_end() -> None:
    assert apply_edits("a\nb", [TextEdit(span=_span(2, 1, 3, 1), text="")]) == "a\n"


@given(
    st.lists(st.text("abc é漢", max_size=6), min_size=1, max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.data(),
)
def test_an_edit_changes_its_span_only(lines: list[str], end: str, data: st.DataObject) -> None:
    row = data.draw(st.integers(0, len(lines) - 1))
    start = data.draw(st.integers(0, len(lines[row])))
    stop = data.draw(st.integers(start, len(lines[row])))
    expected = list(lines)
    expected[row] = lines[row][:start] + "XY" + lines[row][stop:]
    changed = apply_edits(end.join(lines), [_edit(row + 1, start + 1, stop + 1, "XY")])
    assert changed == end.join(expected)


@pytest.mark.parametrize(
    ("before", "after", "target", "good"),
    [
        (["A", "B"], ["B"], "A", True),
        (["A", "B"], ["B"], None, True),
        (["A"], ["B"], "A", False),
        (["A", "A"], ["A"], "A", True),
        (["A"], ["A"], "A", False),
        (["A"], ["A"], None, False),
        (["A", "B"], ["B", "B"], "A", False),
    ],
)
def test_improves(before: list[str], after: list[str], target: str | None, good: bool) -> None:
    wanted = _finding(target) if target else None
    assert improves(map(_finding, before), list(map(_finding, after)), wanted) is good


def test_a_new_note_does_no_harm() -> None:
    note = _finding("N", severity=Severity.NOTE)
    assert improves([_finding("A")], [note], _finding("A"))


class _Linter:
    """Finds every capital letter, and offers to make it small; counts how often it is asked."""

    def __init__(self, *, refuses: str = "") -> None:
        self.refuses = refuses
        self.calls = 0

    def __call__(self, text: str) -> Sequence[Diagnostic]:
        self.calls += 1
        found = [
            _finding(letter, _edit(row, column, column + 1, letter.lower()))
            for row, line in enumerate(text.split("\n"), start=1)
            for column, letter in enumerate(line, start=1)
            if letter.isupper()
        ]
        return [*found, *(_finding("broken") for _ in range(9) if self.refuses and self.refuses in text)]


def test_all_fixes_that_do_not_touch_each_other_go_in_one_round() -> None:
    linter = _Linter()
    changed = rewrite("f.py", "A b\nC D\n", linter("A b\nC D\n"), linter, unsafe=False)
    assert changed.after == "a b\nc d\n"
    assert changed.fixes == 3
    assert linter.calls == 2


def test_a_round_that_makes_things_worse_is_taken_back() -> None:
    linter = _Linter(refuses="ab")
    changed = rewrite("f.py", "AB", linter("AB"), linter, unsafe=False)
    assert changed.after == "aB"
    assert changed.fixes == 1


def test_unsafe_fixes_need_asking_for() -> None:
    found = [_finding("A", _edit(1, 1, 2, "a"), safe=False)]
    kept = rewrite("f.py", "A", found, lambda _: (), unsafe=False)
    assert (kept.after, kept.fixes) == ("A", 0)
    assert rewrite("f.py", "A", found, lambda _: (), unsafe=True).after == "a"


def test_of_two_fixes_for_one_place_one_is_made() -> None:
    found = [_finding("A", _edit(1, 1, 2, "b")), _finding("A", _edit(1, 1, 2, "c"))]
    assert rewrite("f.py", "A", found, lambda _: (), unsafe=False).after == "b"


def test_diff_is_unified() -> None:
    changed = rewrite("dir/f.py", "A\nb", _Linter()("A\nb"), _Linter(), unsafe=False)
    assert changed.diff() == (
        "--- a/dir/f.py\n+++ b/dir/f.py\n@@ -1,2 +1,2 @@\n-A\n+a\n b\n\\ No newline at end of file\n"
    )
