"""Columns in characters against code units: ASCII, tabs, beyond the BMP, every line end."""

from __future__ import annotations

import io
import os
from threading import Thread

import pytest
from lsprotocol.types import Position, Range
from pygls.workspace import PositionCodec

from symalloc.editor.language_server import EndableInput, TextPositions
from symalloc.program.span import Span

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
