"""Reading source files as they are, and writing files whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
import tokenize
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from symalloc.errors import UsageError

_SPECIAL = (("dev",), ("proc",))  # folders of what only looks like files


def read_source(path: Path) -> str:
    """Return the text of a Python source, with the line ends it has.

    Raises OSError, and SyntaxError or UnicodeDecodeError for a wrong encoding.
    """
    data = path.read_bytes()
    return data.decode(_encoding(data))


def write_source(path: Path, text: str) -> None:
    """Replace the text of a Python source, in the encoding that it has.

    Raises OSError, UnicodeEncodeError where the encoding lacks a character.
    """
    write_atomically(path, text.encode(_encoding(path.read_bytes())))


def source_bytes(text: str) -> bytes:
    """The bytes of a Python source with that text, in the encoding that it declares (UTF-8 by default)."""
    try:
        encoding = _encoding(text.encode(errors="replace"))
    except SyntaxError:  # whoever reads it says what is wrong with its declaration
        encoding = "utf-8"
    return text.encode(encoding, errors="replace")


def _encoding(data: bytes) -> str:
    return tokenize.detect_encoding(io.BytesIO(data).readline)[0]


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Raise UsageError, which begins with `what` ("cannot write x"), where the system refuses something."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{what}: {error.strerror}") from None


def require_folder_of(path: Path, what: object = None) -> None:
    """Raise UsageError where `path`, or `what` shall be there, cannot be written for want of a folder."""
    if not path.absolute().parent.is_dir():
        raise UsageError(f"cannot write {what or path}: there is no directory {path.parent}")


def write_proofs(folder: Path, files: Mapping[str, str]) -> None:
    """Write the `files` of a certificate into `folder`, made where it is missing; raises UsageError."""
    from symalloc.planner.check.plan_certificate import write_certificate

    with explained(f"cannot write certificates to {folder}"):
        write_certificate(folder, files)


def read_text(path: Path) -> str:
    """Return the text of a file; raises UsageError."""
    try:
        with explained(f"cannot read {path}"):
            return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None


def write_file(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, see `write_atomically`; raises UsageError."""
    with explained(f"cannot write {path}"):
        write_atomically(path, data)


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
    replace_file(target, data)


def replace_file(target: Path, data: bytes) -> None:
    """Put a file with `data` in the place of `target`, or of the link that it is, in one step.

    Permissions are kept.  Raises OSError.
    """
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


def read_regular(path: Path, most: int) -> bytes:
    """Return the contents of a regular file of at most so many bytes.

    Raises OSError, also for what is larger, for a link, and for a pipe, which is not waited for.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        if status.st_size > most:
            raise OSError(errno.EFBIG, "it is too large")
        return stream.read()


def _mode(path: Path) -> int:
    """The permissions of `path`, or those that a new file gets."""
    if path.exists():
        return path.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
