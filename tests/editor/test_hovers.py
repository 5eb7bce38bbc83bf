"""Hovers: which variable is meant, its size, its place, its live range."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from threading import Thread

import pytest
from lsprotocol.types import Position, Range
from pygls.workspace import PositionCodec

from symalloc.editor.hovers import HoverText, hover_text
from symalloc.editor.language_server import EndableInput, ServerOptions, TextPositions, read_options
from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.program.span import Span
from symalloc.relax.workers.worker_pool import WorkerPool
from symalloc.session.linting import LintedText, LintSession
from tests.editor.texts import BRANCHES, FAULTY

LINES = FAULTY.split("\n")


@pytest.fixture(scope="module")
def session() -> Iterator[LintSession]:
    with WorkerPool(1) as pool:
        yield LintSession(LintOptions(stage="as-is"), pool)


@pytest.fixture(scope="module")
def faulty(session: LintSession) -> LintedText:
    return session.lint_text("no/such/file.py", FAULTY)


@pytest.fixture(scope="module")
def branches(session: LintSession) -> LintedText:
    return session.lint_text("branches.py", BRANCHES)


def _at(linted: LintedText, text: str, behind: str, **bind: int) -> HoverText | None:
    """The hover behind the first `behind` in `text`."""
    before = text[: text.index(behind) + len(behind)]
    return hover_text(linted, before.count("\n") + 1, len(before) - before.rfind("\n"), bind)


def _markdown(linted: LintedText, text: str, behind: str, **bind: int) -> str:
    found = _at(linted, text, behind, **bind)
    assert found is not None
    return found.markdown


def test_a_tensor_on_a_storage(faulty: LintedText) -> None:
    found = _at(faulty, FAULTY, "cls.fill(")
    line = next(i for i, text in enumerate(LINES, 1) if "cls.fill" in text)
    assert found is not None
    assert found.span[1:] == (line, 22, line, 23)
    assert found.markdown.startswith(
        "```python\n𐎢: Tensor[(m,), float32]\n```\n\n**size** `4*m B`\n- m = 1: 4 B"
    )
    assert "**place** byte `0` of `𐎠𐎡` (`16 B`)" in found.markdown
    assert f"**live** from line {line} to the end of the function" in found.markdown
    assert "**error** SYM101: tensor `𐎢` can outgrow its storage" in found.markdown


def test_a_storage_and_an_argument(faulty: LintedText) -> None:
    storage = _markdown(faulty, FAULTY, "alloc_tensor(")
    assert "𐎠𐎡: Storage\n```\n\n**size** `16 B`\n\n**live** from line" in storage
    assert "**memory** of the caller" in _markdown(faulty, FAULTY, "def main(")


def test_sizes_at_the_values_given(faulty: LintedText) -> None:
    assert "**size** `4*m B`\n- m = 300: 1.2 KiB\n\n" in _markdown(faulty, FAULTY, "cls.fill(", m=300, n=1)


def test_the_call_stands_for_what_it_binds(faulty: LintedText) -> None:
    assert "𐎢: Tensor" in _markdown(faulty, FAULTY, "R.memory.alloc_ten")


@pytest.mark.parametrize("behind", ["cls = Modul", "@I.ir_mod", "def fi"])
def test_where_no_tensor_is_nothing_is_shown(faulty: LintedText, behind: str) -> None:
    assert _at(faulty, FAULTY, behind) is None


@pytest.mark.parametrize(
    ("behind", "live"),
    [
        ('R.Tensor((), "bool"), ', None),  # the parameter x
        ("        x", "from line 8 to line 13"),  # the x bound anew
        ("x = R.add(", None),  # the parameter again, where the other x is made
        ("R.multiply(", "from line 8 to line 13"),
        ("R.add(a, ", "from line 10 to line 11"),
        ("            y", "from line 11 to the end of the function"),
        ("R.strided_slice(", "from line 13 to line 14"),
    ],
)
def test_a_name_bound_several_times_means_the_last_in_front(
    branches: LintedText, behind: str, live: str | None
) -> None:
    shown = _markdown(branches, BRANCHES, behind)
    assert f"**live** {live}" in shown if live else "**memory** of the caller" in shown


def test_the_value_of_an_if_is_neither_of_its_branches(branches: LintedText) -> None:
    shown = _markdown(branches, BRANCHES, "return ")
    assert "y: Tensor[(n, 4), float32]" in shown
    assert "**live**" not in shown


def test_json_has_no_places(session: LintSession) -> None:
    linted = session.lint_text("model.json", '{"root_index": 0}')
    assert [d.rule for d in linted.diagnostics] == ["SYM902"]
    assert hover_text(linted, 1, 1, {}) is None


# -- the options that an editor gives -----------------------------------------------------------------------


def test_without_options_the_defaults_hold() -> None:
    assert read_options(None) == read_options({}) == ServerOptions()


def test_times_and_values_of_symbols_are_read() -> None:
    given = read_options({"debounce": 300, "timeout": 5, "bind": {"n": 128}})
    assert given == ServerOptions(debounce=300, timeout=5, bind={"n": 128})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "it must be an object"),
        ({"debonce": 1}, "did you mean 'debounce'"),
        ({"debounce": -1}, "`debounce` is -1; it must be a whole number of at least 0"),
        ({"timeout": True}, "`timeout` is True; it must be a number of seconds"),
        ({"bind": "n=1"}, "`bind` is 'n=1'; it must map symbols to whole numbers"),
        ({"bind": {"n": "1"}}, "the `bind` of 'n' is '1'; it must be a whole number"),
    ],
)
def test_what_makes_no_sense_is_refused(given: object, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_options(given)
    assert said in str(caught.value)


UTF_16 = PositionCodec().client_num_units
TEXT = "x = 1\n\té = '🧮🧮' # ∀n\r\nlast 🧮\rend\x0c of\u2028it"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_each_place_has_the_units_in_front_of_it_and_leads_back(encoding: str) -> None:
    positions = TextPositions(TEXT, PositionCodec(encoding).client_num_units)
    codec = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}[encoding]
    assert positions.lines == ["x = 1", "\té = '🧮🧮' # ∀n", "last 🧮", "end\x0c of\u2028it"]
    for number, line in enumerate(positions.lines, 1):
        for column in range(1, len(line) + 2):
            units = len(line[: column - 1].encode(codec[0])) // codec[1]
            position = positions.position(number, column)
            assert position == Position(number - 1, units)
            assert positions.place(position) == (number, column)


def test_a_position_inside_of_a_character_is_in_front_of_it() -> None:
    assert TextPositions("a🧮b", UTF_16).place(Position(0, 2)) == (1, 2)


def test_what_is_behind_an_end_is_at_that_end() -> None:
    positions = TextPositions("ab\nc🧮", UTF_16)
    assert positions.position(1, 9) == Position(0, 2)
    assert positions.position(7, 1) == Position(1, 3)
    assert positions.place(Position(0, 9)) == (1, 3)
    assert positions.place(Position(9, 0)) == (2, 3)


def test_the_range_of_a_span_that_ends_in_front_of_the_line_behind_the_text() -> None:
    found = TextPositions("ab\ncd", UTF_16).range_of(Span("", 2, 1, 3, 1))
    assert found == Range(Position(1, 0), Position(1, 2))


# -- standard input -------------------------------------------------------------------------------------


def test_what_comes_is_read_until_it_ends() -> None:
    source, writer = os.pipe()
    os.write(writer, b"a line\nand more")
    os.close(writer)
    reader = io.BufferedReader(EndableInput(source))
    assert (reader.readline(), reader.read(100), reader.read(1)) == (b"a line\n", b"and more", b"")
    os.close(source)


def test_who_waits_is_let_go() -> None:
    source, writer = os.pipe()
    input_, found = EndableInput(source), []
    thread = Thread(target=lambda: found.append(io.BufferedReader(input_).readline()))
    thread.start()
    input_.end()
    thread.join(20)
    assert found == [b""]
    os.close(writer)
    os.close(source)
