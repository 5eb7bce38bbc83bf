"""From arguments to files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from symalloc.program.reading import InputError
from symalloc.relax.read.find_files import find

SCRIPT = "from tvm.script import ir as I\n\n\n@I.ir_module\nclass M:\n    pass\n"
GRAPH = '{"root_index": 0, "nodes": []}'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("models/inner", "models/__pycache__", "models/.hidden", "empty"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("b.py", "__pycache__/d.py", ".hidden/e.py"):
        (tmp_path / "models" / name).write_text(SCRIPT)
    for name, text in (("a.json", GRAPH), ("config.json", '{"a": 1}'), ("plain.py", "x = 1\n")):
        (tmp_path / "models" / name).write_text(text)
    (tmp_path / "models/inner/c.json.gz").write_bytes(gzip.compress(GRAPH.encode()))
    return tmp_path


def names(files: tuple[Path, ...]) -> list[str]:
    return [file.name for file in files]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("models", "a.json b.py c.json.gz m.onnx m.pt2"),
        ("models/*.py", "b.py plain.py"),
        ("**/*.gz", "c.json.gz"),
        ("models/b.py models models/*.json", "b.py a.json c.json.gz m.onnx m.pt2 config.json"),  # each once
    ],
)
def test_what_directories_and_patterns_give(tree: Path, arguments: str, found: str) -> None:
    for name in ("m.onnx", "m.pt2", "m.pt"):
        (tree / "models/inner" / name).write_bytes(b"\x08")
    assert names(find([str(tree / one) for one in arguments.split()]).files) == found.split()


@pytest.mark.parametrize(
    ("name", "content"),
    [("model.onnx", b""), ("model.pt2", b"PK"), ("named.by.its.content", SCRIPT.encode())],
)
def test_a_named_file_that_may_be_a_model_or_is_damaged_is_taken(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    assert names(find([str(tmp_path / name)]).files) == [name]


def test_a_function_is_taken_with_trust(tree: Path) -> None:
    named = str(tree / "models/b.py") + ":make"
    assert find([named], trust=True).files == (Path(named),)
    with pytest.raises(InputError, match=r"no such file: .*missing\.py"):
        find([str(tree / "missing.py:make")], trust=True)


def test_a_path_with_a_colon_is_a_path(tree: Path) -> None:
    odd = tree / "b.py:make"
    odd.write_text(SCRIPT)
    assert find([str(odd)]).files == (odd,)


def test_what_is_passed_over_is_counted(tree: Path) -> None:
    models = str(tree / "models")
    assert find([models]).skipped == 2  # config.json and plain.py
    assert find([models, models + "/config.json", models + "/*/*"]).skipped == 2
    (tree / "models/notes.txt").write_text("not for us")
    assert find([models]).skipped == 2
    with pytest.raises(InputError, match=r"none of the files that match .*\*.txt is TVMScript"):
        find([models + "/*.txt"])
