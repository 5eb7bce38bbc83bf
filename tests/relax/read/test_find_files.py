"""From arguments to files."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from symalloc.program.reading import InputError
from symalloc.relax.read.find_files import FoundFiles, find

SCRIPT = "from tvm.script import ir as I\n\n\n@I.ir_module\nclass M:\n    pass\n"
GRAPH = '{"root_index": 0, "nodes": []}'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("models/inner", "models/__pycache__", "models/.hidden", "empty"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "models/b.py").write_text(SCRIPT)
    (tmp_path / "models/a.json").write_text(GRAPH)
    (tmp_path / "models/config.json").write_text('{"a": 1}')
    (tmp_path / "models/plain.py").write_text("x = 1\n")
    (tmp_path / "models/inner/c.json.gz").write_bytes(gzip.compress(GRAPH.encode()))
    (tmp_path / "models/__pycache__/d.py").write_text(SCRIPT)
    (tmp_path / "models/.hidden/e.py").write_text(SCRIPT)
    return tmp_path


def names(files: tuple[Path, ...]) -> list[str]:
    return [file.name for file in files]


def test_a_directory_gives_what_may_hold_modules(tree: Path) -> None:
    assert names(find([str(tree / "models")]).files) == ["a.json", "b.py", "c.json.gz"]


def test_a_named_file_is_taken_whatever_it_holds(tree: Path) -> None:
    assert names(find([str(tree / "models/plain.py")]).files) == ["plain.py"]


def test_a_pattern(tree: Path) -> None:
    assert names(find([str(tree / "models/*.py")]).files) == ["b.py", "plain.py"]
    assert names(find([str(tree / "**/*.gz")]).files) == ["c.json.gz"]


def test_what_is_passed_over_is_counted(tree: Path) -> None:
    models = str(tree / "models")
    assert find([models]).skipped == 2  # config.json and plain.py
    assert find([models, models + "/config.json", models + "/*/*"]).skipped == 1
    (tree / "models/notes.txt").write_text("not for us")
    assert find([models]).skipped == 2
    assert find([models + "/*.txt"]) == FoundFiles(files=(), skipped=1)


def test_each_file_comes_once(tree: Path) -> None:
    models = tree / "models"
    assert names(find([str(models / "b.py"), str(models), str(models / "*.json")]).files) == [
        "b.py",
        "a.json",
        "c.json.gz",
        "config.json",
    ]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("missing.py", "no such file or directory: .*missing.py"),
        ("empty", "empty holds no Relax modules"),
        ("*.xyz", "no file matches the pattern"),
        ("pipe.py", "is not a regular file"),
        ("broken.py", "is a broken link"),
    ],
)
def test_what_cannot_be_read_is_said(tree: Path, argument: str, message: str) -> None:
    os.mkfifo(tree / "pipe.py")
    (tree / "broken.py").symlink_to(tree / "nowhere")
    with pytest.raises(InputError, match=message):
        find([str(tree / argument)])


def test_no_argument_and_an_empty_one() -> None:
    with pytest.raises(InputError, match="no files given"):
        find([])
    with pytest.raises(InputError, match="an empty file name"):
        find([""])
