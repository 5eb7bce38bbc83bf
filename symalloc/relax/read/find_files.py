"""From the arguments of a command line to files: paths, directories, glob patterns.  Imports no TVM."""

from __future__ import annotations

import glob
import gzip
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from symalloc.program.reading import InputError

_SCRIPT_MARK = re.compile(rb"\bir_module\b|\bprim_func\b|\.function\b|@function\b")
_JSON_MARK = b'"root_index"'
_PROBE_BYTES = 1 << 16
_IGNORED = frozenset({"__pycache__", "node_modules", "site-packages"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFiles:
    """Files to read, and how many were passed over because they hold no Relax module."""

    files: tuple[Path, ...]
    skipped: int


def find(arguments: Sequence[str]) -> FoundFiles:
    """The files that `arguments` name, each once, in the order given; those of a directory sorted.

    A directory is searched for `.py`, `.json` and `.json.gz` files that may hold Relax modules; the others in
    it, and hidden and installed folders, are passed over.  A file that is named itself is always taken.

    Raises InputError where a file is missing or no regular file, a directory holds no module, a pattern
    matches nothing, or `arguments` is empty.
    """
    if not arguments:
        raise InputError("no files given: name TVMScript (.py) or JSON files, directories, or glob patterns")
    found = [each for argument in arguments for each in _expand_one(argument)]
    files = dict.fromkeys(path for path, taken in found if taken)
    skipped = {path for path, taken in found if not taken}
    return FoundFiles(files=tuple(files), skipped=len(skipped - files.keys()))


def _expand_one(argument: str) -> Iterator[tuple[Path, bool]]:
    """The files, and whether each is to be read."""
    if not argument:
        raise InputError("an empty file name was given")
    path = Path(argument)
    if path.is_dir():
        yield from _in_directory(path)
    elif path.exists() or path.is_symlink():
        yield _regular(path), True
    elif glob.has_magic(argument):
        yield from _matching(argument)
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
    for match in matches:
        path = Path(match)
        if path.is_file():
            yield path, _suffix_fits(path)
        elif path.is_dir():
            yield from _candidates(path)


def _in_directory(directory: Path) -> tuple[tuple[Path, bool], ...]:
    if not os.access(directory, os.R_OK | os.X_OK):
        raise InputError(f"cannot read the directory {directory}: permission denied")
    files = tuple(_candidates(directory))
    if not any(taken for _, taken in files):
        raise InputError(
            f"{directory} holds no Relax modules: neither a .py file with an @I.ir_module class "
            f"nor a JSON file written by tvm.ir.save_json"
        )
    return files


def _candidates(directory: Path) -> Iterator[tuple[Path, bool]]:
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if name not in _IGNORED and not name.startswith("."))
        paths = (Path(folder) / name for name in sorted(names))
        yield from ((path, may_hold_modules(path)) for path in paths if _suffix_fits(path))


def _suffix_fits(path: Path) -> bool:
    return path.name.endswith((".py", ".json", ".json.gz"))


def may_hold_modules(path: Path) -> bool:
    """Return whether a look at the bytes of `path` leaves it possible that it holds a Relax module."""
    if not path.is_file():
        return False
    try:
        if path.suffix == ".py":
            return _SCRIPT_MARK.search(path.read_bytes()) is not None
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as stream:
            return _JSON_MARK in stream.read(_PROBE_BYTES)
    except (OSError, EOFError):
        return True  # the reader says what is wrong with it
