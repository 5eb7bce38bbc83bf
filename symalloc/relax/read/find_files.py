"""From the arguments of a command line to files: paths, directories, glob patterns.  Imports no TVM."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from symalloc.arguments import require_path
from symalloc.program.reading import InputError
from symalloc.relax.read.model_file import (
    STDIN,
    STDIN_ARGUMENT,
    has_model_suffix,
    is_no_model,
    may_hold_modules,
    model_function,
)

_IGNORED = frozenset({"__pycache__", "node_modules", "site-packages"})
_KINDS = "TVMScript (.py), JSON of TVM (.json, .json.gz), ONNX (.onnx) or torch.export (.pt2)"


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
    matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 (Path.glob wants a root)
    if not matches:
        raise InputError(f"no file matches the pattern {pattern}")
    found = [each for match in matches for each in _matched(Path(match))]
    if not any(taken for _, taken in found):
        raise InputError(f"none of the files that match {pattern} is {_KINDS}")
    yield from found


def _matched(path: Path) -> Iterator[tuple[Path, bool]]:
    if path.is_file():
        yield path, has_model_suffix(path)
    elif path.is_dir():
        yield from _candidates(path)


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
        yield from ((path, may_hold_modules(path)) for path in paths if has_model_suffix(path))
