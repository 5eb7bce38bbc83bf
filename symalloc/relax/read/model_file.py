"""The kinds of model files, told apart by name and content.  Imports no TVM."""

from __future__ import annotations

import ast
import gzip
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from symalloc.program.reading import UnreadableError

ModelKind: TypeAlias = Literal["script", "json", "onnx", "pt2", "function"]

STDIN = Path("<stdin>")
"""The name of what comes from standard input."""

STDIN_ARGUMENT = "-"
_SUFFIXES: Sequence[tuple[str, ModelKind]] = (
    (".py", "script"),
    (".json", "json"),
    (".json.gz", "json"),
    (".onnx", "onnx"),
    (".pt2", "pt2"),
)
SUFFIXES = tuple(suffix for suffix, _ in _SUFFIXES)
_FUNCTION = re.compile(r"(?P<file>.+\.py):(?P<name>[^\W\d]\w*)", re.DOTALL)
_SCRIPT_MARK = re.compile(rb"\bir_module\b|\bprim_func\b|\.function\b|@function\b")
_JSON_MARK = b'"root_index"'
_GZIP, _ZIP, _ONNX_START = b"\x1f\x8b", b"PK\x03\x04", b"\x08"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PROBE_BYTES = 1 << 16


class ModelFunction(NamedTuple):
    """A function of a Python file, written `file.py:function`."""

    file: Path
    name: str


def model_function(path: Path) -> ModelFunction | None:
    """The function that `path` names; None where it is a file, or not written `file.py:function`."""
    found = _FUNCTION.fullmatch(str(path))
    if found is None or path.exists() or path.is_symlink():
        return None
    return ModelFunction(Path(found["file"]), found["name"])


def has_model_suffix(path: Path) -> bool:
    """Return whether a file of that name is looked at when a folder is searched."""
    return path.name.endswith(SUFFIXES)


def kind_of(path: Path, data: bytes) -> ModelKind:
    """The kind of the file `path`, which holds `data`: by its name, else by its content.

    Raises UnreadableError where neither tells.
    """
    for suffix, kind in _SUFFIXES:
        if path.name.endswith(suffix):
            return kind
    return _kind_of_content(data)


def _kind_of_content(data: bytes) -> ModelKind:
    text = data.removeprefix(_BYTE_ORDER_MARK).lstrip()
    if not text:
        raise UnreadableError("it is empty")
    if data.startswith(_ZIP):
        return "pt2"
    if data.startswith(_GZIP) or text.startswith(b"{"):
        return "json"
    if data.startswith(_ONNX_START):
        return "onnx"
    if b"\0" in data:
        raise UnreadableError("it is binary, but neither an ONNX model nor an exported program of torch")
    return "script"


def may_hold_modules(path: Path) -> bool:
    """Return whether a look at the bytes of `path` leaves it possible that it holds a model."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            data = stream.read(_PROBE_BYTES)
            if has_model_suffix(path):
                kind = kind_of(path, data)
            elif not data.strip():
                return False
            else:
                kind = _kind_of_content(data)
            if kind == "script":
                return _SCRIPT_MARK.search(data + stream.read()) is not None
        if kind == "json":
            return _json_may_hold(path, data)
    except UnreadableError:
        return False
    except (OSError, EOFError):
        return True  # the reader says what is wrong with it
    return True


def text_may_hold_modules(path: Path, text: str) -> bool:
    """Return whether a look at `text`, the contents of a script or of JSON, leaves it possible."""
    if path.name.endswith(".py"):
        return _SCRIPT_MARK.search(text.encode(errors="replace")) is not None
    return path.name.endswith(".json") and _JSON_MARK.decode() in text[:_PROBE_BYTES]


def _json_may_hold(path: Path, data: bytes) -> bool:
    if data.startswith(_GZIP) or path.suffix == ".gz":
        with gzip.open(path, "rb") as stream:
            data = stream.read(_PROBE_BYTES)
    return _JSON_MARK in data


def is_no_model(path: Path) -> bool:
    """Return whether the file `path`, which was named itself, is sound and certainly holds no model.

    What is damaged, or empty and should not be, is left to the reader, which says what is wrong.
    """
    if may_hold_modules(path):
        return False
    data = path.read_bytes()
    name = path.name
    if name.endswith(".py"):
        return _parses(data)
    if name.endswith(".json"):
        return bool(data.strip()) and b"\0" not in data
    return True


def _parses(data: bytes) -> bool:
    try:
        ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
