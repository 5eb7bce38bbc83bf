from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from symalloc.session.files import read_source, write_atomically, write_source


@pytest.mark.parametrize(
    "data", [b"x = 1\r\ny = 2\r\n", "# é\n".encode(), b"# coding: latin-1\n# \xe9\n", b"\xef\xbb\xbfx = 1\n"]
)
def test_a_source_is_written_back_as_it_was(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(data)
    write_source(path, read_source(path))
    assert path.read_bytes() == data


def test_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("x")
    path.chmod(0o640)
    write_atomically(path, b"y")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.read_bytes() == b"y"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.py", tmp_path / "link.py"
    real.write_text("x")
    link.symlink_to(real)
    write_atomically(link, b"y")
    assert link.is_symlink()
    assert real.read_bytes() == b"y"


def test_what_is_no_regular_file_is_written_to_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as other:
        read = other.submit(pipe.read_bytes)
        write_atomically(pipe, b"data")
        assert read.result(10) == b"data"
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("# coding: latin-1\n")
    with pytest.raises(UnicodeEncodeError):
        write_source(path, "漢")
    assert [p.name for p in tmp_path.iterdir()] == ["m.py"]
    assert path.read_text() == "# coding: latin-1\n"
