from __future__ import annotations

import io
import os
from threading import Thread

from symalloc.editor.language_server import EndableInput


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
