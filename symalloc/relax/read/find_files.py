"""The files of models: kinds told apart by name and content, and from arguments of a command line to paths.

Imports no TVM.
"""

from __future__ import annotations

import ast
import glob
import gzip
import json
import os
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from symalloc.errors import require_path
from symalloc.program.reading import InputError, UnreadableError

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
"""The ends of the names of files that are looked at when a folder is searched."""
_FUNCTION = re.compile(r"(?P<file>.+\.py):(?P<name>[^\W\d]\w*)", re.DOTALL)
_SCRIPT_MARK = re.compile(rb"\bir_module\b|\bprim_func\b|\.function\b|@function\b")
_JSON_MARK = b'"root_index"'
GZIP, _ZIP, _ONNX_START = b"\x1f\x8b", b"PK\x03\x04", b"\x08"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PROBE_BYTES = 1 << 16
_IGNORED = frozenset({"__pycache__", "node_modules", "site-packages"})
_KINDS = "TVMScript (.py), JSON of TVM (.json, .json.gz), ONNX (.onnx) or torch.export (.pt2)"


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


def kind_of(path: Path, data: bytes) -> ModelKind:
    """The kind of the file `path`, which holds `data`: by its name, else by its content.

    Raises UnreadableError where neither tells.
    """
    for suffix, kind in _SUFFIXES:
        if path.name.endswith(suffix):
            return kind
    text = data.removeprefix(_BYTE_ORDER_MARK).lstrip()
    if not text:
        raise UnreadableError("it is empty")
    if data.startswith(_ZIP):
        return "pt2"
    if data.startswith(GZIP) or text.startswith(b"{"):
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
            kind = kind_of(path, data)
            if kind == "script":
                return _SCRIPT_MARK.search(data + stream.read()) is not None
        if kind == "json" and (data.startswith(GZIP) or path.suffix == ".gz"):
            with gzip.open(path, "rb") as stream:
                data = stream.read(_PROBE_BYTES)
    except UnreadableError:
        return False
    except (OSError, EOFError):
        return True  # the reader says what is wrong with it
    return kind != "json" or _JSON_MARK in data


def text_may_hold_modules(path: Path, text: str) -> bool:
    """Return whether a look at `text`, the contents of a script or of JSON, leaves it possible."""
    if path.name.endswith(".py"):
        return _SCRIPT_MARK.search(text.encode(errors="replace")) is not None
    return path.name.endswith(".json") and _JSON_MARK.decode() in text[:_PROBE_BYTES]


def is_no_model(path: Path) -> bool:
    """Return whether the file `path`, which was named itself, is sound and certainly holds no model.

    What is damaged, or empty and should not be, is left to the reader, which says what is wrong.
    """
    if may_hold_modules(path):
        return False
    data = path.read_bytes()
    try:
        if path.name.endswith((".json", ".json.gz")):
            found = json.loads(gzip.decompress(data) if data.startswith(GZIP) else data)
            return not isinstance(found, dict) or "root_index" not in found
        return not path.name.endswith(".py") or ast.parse(data) is not None
    except (SyntaxError, ValueError, OSError, EOFError, zlib.error, RecursionError, MemoryError):
        return False


# -- arguments ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFiles:
    """Files to read, and how many were passed over because they hold no Relax module.

    `standard_input` is the content of the file STDIN, if that is among them.
    """

    files: tuple[Path, ...]
    skipped: int
    standard_input: bytes | None = None


def find(arguments: Sequence[str], *, trust: bool = False, strict: bool = False) -> FoundFiles:
    """The files that `arguments` name, each once, in the order given; those of a directory sorted.

    A directory is searched for files whose suffix is that of a model and that may hold one; the others in it,
    and hidden and installed folders, are passed over.  So is a file that is named itself and certainly holds
    no model, unless `strict`.  `-` is standard input; `file.py:function` is taken where `trust` is given.

    Raises InputError where a file is missing or no regular file, a directory holds no module, a pattern
    matches none, or `arguments` is empty.
    """
    if not arguments:
        raise InputError("no files given: name models, directories, or glob patterns")
    found = [each for argument in arguments for each in _expand_one(argument, trust=trust, strict=strict)]
    files = dict.fromkeys(path for path, taken in found if taken)
    skipped = {path for path, taken in found if not taken}
    return FoundFiles(
        files=tuple(files),
        skipped=len(skipped - files.keys()),
        standard_input=read_standard_input() if STDIN in files else None,
    )


def read_standard_input() -> bytes:
    """All bytes of standard input.  Raises InputError where there is none, or nothing in it."""
    try:
        data = sys.stdin.buffer.read() if sys.stdin is not None else b""
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read standard input: {error}") from None
    if not data.strip():
        raise InputError("standard input is empty")
    return data


def require_function(path: Path, *, trust: bool) -> bool:
    """Return whether `path` is `file.py:function`; raises InputError where it is and cannot be called."""
    function = model_function(path)
    if function is None:
        return False
    if not function.file.exists():
        raise InputError(f"no such file: {function.file}")
    _regular(function.file)
    if not trust:
        raise InputError(
            f"{path} runs the code of {function.file}; add --trust if you have read and trust that file"
        )
    return True


def _expand_one(argument: str, *, trust: bool, strict: bool) -> Iterator[tuple[Path, bool]]:
    """The files, and whether each is to be read."""
    if not argument:
        raise InputError("an empty file name was given")
    path = require_path("the file", argument)
    if argument == STDIN_ARGUMENT:
        yield STDIN, True
    elif path.is_dir():
        yield from _in_directory(path)
    elif path.exists() or path.is_symlink():
        yield _regular(path), strict or not is_no_model(path)
    elif glob.has_magic(argument):
        yield from _matching(argument)
    elif require_function(path, trust=trust):
        yield path, True
    else:
        raise InputError(f"no such file or directory: {argument}")


def _regular(path: Path) -> Path:
    if not path.exists():
        raise InputError(f"{path} is a broken link")
    if not path.is_file():
        raise InputError(f"{path} is not a regular file")
    return path


def _matching(pattern: str) -> Iterator[tuple[Path, bool]]:
    matches = sorted(map(Path, glob.glob(pattern, recursive=True)))  # noqa: PTH207 (Path.glob wants a root)
    if not matches:
        raise InputError(f"no file matches the pattern {pattern}")
    found: list[tuple[Path, bool]] = []
    for path in matches:
        if path.is_file():
            found.append((path, path.name.endswith(SUFFIXES)))
        elif path.is_dir():
            found += _candidates(path)
    if not any(taken for _, taken in found):
        raise InputError(f"none of the files that match {pattern} is {_KINDS}")
    yield from found


def _in_directory(directory: Path) -> tuple[tuple[Path, bool], ...]:
    if not os.access(directory, os.R_OK | os.X_OK):
        raise InputError(f"cannot read the directory {directory}: permission denied")
    files = tuple(_candidates(directory))
    if not any(taken for _, taken in files):
        raise InputError(
            f"{directory} holds no Relax modules: neither a .py file with an @I.ir_module class, "
            f"nor a JSON file written by tvm.ir.save_json, nor .onnx or .pt2 files"
        )
    return files


def _candidates(directory: Path) -> Iterator[tuple[Path, bool]]:
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if name not in _IGNORED and not name.startswith("."))
        paths = (Path(folder) / name for name in sorted(names))
        yield from ((path, may_hold_modules(path)) for path in paths if path.name.endswith(SUFFIXES))
