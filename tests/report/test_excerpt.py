from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from symalloc.program.span import Span, split_lines
from symalloc.report.text import CellLine, Underline, Window, excerpt
from tests.scale import tries

ALPHABET = "ab ()\té漢\u0301\x1b"
TEXTS = st.lists(st.text(ALPHABET, max_size=120), min_size=1, max_size=9).map("\n".join)


@st.composite
def _marks(draw: st.DrawFn) -> Underline:
    line, column = draw(st.integers(1, 9)), draw(st.integers(1, 130))
    end_line = draw(st.integers(line, 10))
    end_column = draw(st.integers(column if end_line == line else 1, 140))
    span = Span(file="f", line=line, column=column, end_line=end_line, end_column=end_column)
    return Underline(
        span=span,
        text=draw(st.sampled_from(["", "label", "漢字"])),
        style="",
        glyph=draw(st.sampled_from("^-")),
    )


@settings(max_examples=tries(150, 3000))
@given(TEXTS, st.lists(_marks(), max_size=4), st.sampled_from([None, 20, 40, 80]))
def test_any_marks_in_any_text(text: str, marks: list[Underline], width: int | None) -> None:
    rows = excerpt(text, marks, width)
    count = len(split_lines(text))
    inside = [m for m in marks if m.span.end_line <= count]
    numbers = [row.number for row in rows if row.number]
    assert numbers == sorted(set(numbers))
    assert {m.span.line for m in inside} <= set(numbers)
    assert bool(rows) == bool(inside)
    for row in rows:
        assert not {"\n", "\t", "\x1b"} & set(row.text.plain)
        if width is not None and row.number:
            assert cell_len(row.text.plain) <= width
    labels = sorted(m.text for m in inside if m.text)
    shown = " ".join(row.text.plain for row in rows if not row.number)
    assert all(shown.count(label) >= labels.count(label) for label in labels)


def test_a_wide_character_is_not_split() -> None:
    line = CellLine("漢字漢字")
    assert line.cut(Window(left=0, right=5)) == "漢字…"
    assert line.cut(Window(left=2, right=8)) == "… 漢字"
    assert line.cell(3) == 4
