"""Reading source files as they are, and writing files whole or not at all."""

from __future__ import annotations

import io
import os
import tempfile
import tokenize
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SPECIAL = (("dev",), ("proc",))  # folders of what only looks like files


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A Python source file: its text with the line ends it has, and the encoding that it declares."""

    path: Path
    text: str
    encoding: str

    def write(self, text: str) -> None:
        """Replace the contents; raises OSError, UnicodeEncodeError where the encoding lacks a character."""
        write_atomically(self.path, text.encode(self.encoding))


def read_source(path: Path) -> SourceFile:
    """Read the file at `path`; raises OSError, and SyntaxError or UnicodeDecodeError for a wrong encoding."""
    with path.open("rb") as stream:
        encoding, _ = tokenize.detect_encoding(stream.readline)
    return SourceFile(path=path, text=path.read_bytes().decode(encoding), encoding=encoding)


def source_bytes(text: str) -> bytes:
    """The bytes of a Python source with that text, in the encoding that it declares (UTF-8 by default)."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text.encode(errors="replace")).readline)
    except SyntaxError:  # whoever reads it says what is wrong with its declaration
        encoding = "utf-8"
    return text.encode(encoding, errors="replace")


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step: a reader sees the old contents or the new.  Raises OSError.

    Permissions are kept; a link is followed.  What is no regular file, such as a device or a pipe, or
    stands for an open one, such as /dev/stdout, is written to as it is: it must not be replaced.
    """
    target = path.resolve()
    if path.absolute().parts[1:2] in _SPECIAL or (target.exists() and not target.is_file()):
        with path.open("ab") as stream:  # not truncated: it may be where standard output goes
            stream.write(data)
        return
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        temporary.chmod(_mode(target))
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _mode(path: Path) -> int:
    """The permissions of `path`, or those that a new file gets."""
    if path.exists():
        return path.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
