"""The errors that public functions raise for what a caller can mend, and checks of what callers give.  Every
room may use them.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from fractions import Fraction
from math import inf
from operator import index
from pathlib import Path


class SymallocError(Exception):
    """Base of the errors of the public functions; the text is meant for a person."""


class UsageError(SymallocError, ValueError):
    """An argument, option, assumption, rule or configuration makes no sense: the text says which."""


class RunError(SymallocError):
    """A module cannot be read, planned, built or run as asked: the text says why."""


def meant(value: object, choices: Sequence[str]) -> str:
    """Return the question whether the choice nearest to `value` was meant, or "" where none is near."""
    close = nearest(value, choices) if isinstance(value, str) else None
    return f"; did you mean {close!r}?" if close else ""


def nearest(word: str, known: Sequence[str]) -> str | None:
    """Return the entry of `known` that `word` was probably meant to be, or None."""
    return next(iter(get_close_matches(word, known, n=1)), None)


_MOST_SHOWN = 60  # characters of a value
MOST_BYTES = 2**62
MOST_EXTENT = 2**63 - 1  # of a dimension
_BINARY = {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_FACTORS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12} | _BINARY
# Python refuses to read more than 4,300 digits
AMOUNT = re.compile(r"(\d{1,99}(?:\.\d{1,99})?) ?([a-z]*)", re.IGNORECASE | re.ASCII)


def shown(value: object) -> str:
    """Return `value` as an error quotes it: one line, and no long one."""
    try:
        return cut(repr(value))
    except Exception:  # of a class of the caller's
        return f"a {type(value).__name__}"


def cut(text: str) -> str:
    """Return the first line of `text`, no more of it than an error quotes."""
    first, *rest = text.splitlines() or [""]
    return first if not rest and len(first) <= _MOST_SHOWN else f"{first[:_MOST_SHOWN]}…"


def require_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Return the one of its `choices` that the argument `name` is; raise UsageError for anything else."""
    if isinstance(value, str) and value in choices:
        return value
    known = ", ".join(choices)
    raise UsageError(f"{name} is {shown(value)}; it must be one of {known}{meant(value, choices)}")


def require_flag(name: str, value: object) -> bool:
    """Return the argument `name`; raise UsageError where it is neither True nor False."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {shown(value)}; it must be True or False")
    return value


def _whole(value: object) -> int | None:
    try:
        return None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def require_whole(name: str, value: object, least: int, most: int | None = None) -> int:
    """Return the whole number that the argument `name` is; raise UsageError for none, or one out of range."""
    number = _whole(value)
    if number is None or number < least:
        raise UsageError(f"{name} is {shown(value)}; it must be a whole number of at least {least}")
    if most is not None and number > most:
        raise UsageError(f"{name} is {shown(value)}; it must be at most {most}")
    return number


def _parsed_bytes(name: str, text: str) -> int:
    match = AMOUNT.fullmatch(text.strip())
    if match is None or match[2].lower() not in _FACTORS:
        examples = "write bytes, or 64KiB, 512MiB, 1.5GiB, 10KB"
        raise UsageError(f"{name}: `{cut(text)}` is no amount of memory; {examples}")
    nbytes = int(Fraction(match[1]) * _FACTORS[match[2].lower()])
    if nbytes > MOST_BYTES:
        raise UsageError(f"{name}: `{cut(text)}` is more memory than there can be")
    return nbytes


def require_bytes(name: str, value: object, *, least: int = 0, most: int = MOST_BYTES) -> int:
    """Return the bytes that the argument `name` is: 4096, 4096.0, "64KiB", "10KB".  Raises UsageError."""
    amount = _parsed_bytes(name, value) if isinstance(value, str) else value
    nbytes = int(amount) if isinstance(amount, float) and amount.is_integer() else _whole(amount)
    if nbytes is None:
        raise UsageError(f"{name} is {shown(value)}; it must be a whole number of bytes")
    if not least <= nbytes <= most:
        raise UsageError(f"{name} is {shown(value)}; it must be from {least} to {most} bytes")
    return nbytes


def require_binding(name: str, value: object) -> dict[str, int]:
    """Return the values of symbols that the argument `name` is, by the names of the symbols.

    A symbol is a text, or has a name, as sympy's do.  Raises UsageError.
    """
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} is {shown(value)}; it must map symbols to whole numbers")
    return {
        require_text(f"a symbol of the {name}", getattr(symbol, "name", symbol)): require_whole(
            f"the {name} of {str(symbol)!r}", extent, -MOST_EXTENT, MOST_EXTENT
        )
        for symbol, extent in value.items()
    }


def require_seconds(name: str, value: object, *, least: float = 0.001, most: float = inf) -> float:
    """Return the duration that the argument `name` is; raise UsageError for none, or one out of range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise UsageError(f"{name} is {shown(value)}; it must be a number of seconds of at least {least}")
    if value > most:
        raise UsageError(f"{name} is {shown(value)}; it must be at most {most}")
    return float(value)


def require_text(name: str, value: object) -> str:
    """Return the text that the argument `name` is; raise UsageError for anything else."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is {shown(value)}; it must be a text")
    return value


def require_texts(name: str, value: object) -> tuple[str, ...]:
    """Return the texts of the argument `name`, which may be a single one; raise UsageError for no texts."""
    texts = _several(name, [value] if isinstance(value, str) else value, "a text or a list of texts")
    return tuple(require_text(f"one of {name}", text) for text in texts)


def require_path(name: str, value: object) -> Path:
    """Return the path that the argument `name` is; raise UsageError for what the system takes for none."""
    if not isinstance(value, str | Path):
        raise UsageError(f"{name} is {shown(value)}; it must be a path")
    if value == "":  # as an unset variable of a shell is; it would stand for the working directory
        raise UsageError(f"{name}: an empty path was given")
    try:
        Path(value).stat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"{name} is {shown(str(value))}: {error.strerror}") from None
    except ValueError:  # a null character, a half of a character
        raise UsageError(f"{name} is {shown(str(value))}; no file can be called so") from None
    return Path(value)


def require_paths(name: str, value: object) -> tuple[Path, ...]:
    """Return the paths of the argument `name`, which may be a single one; raise UsageError for no paths."""
    paths = _several(name, [value] if isinstance(value, str | Path) else value, "a path or a list of paths")
    return tuple(require_path(name, path) for path in paths)


def _several(name: str, value: object, what: str) -> Iterable[object]:
    """Return `value`, which can be gone through as a list can: bytes and the keys of a mapping are none."""
    if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping):
        return value
    raise UsageError(f"{name} is {shown(value)}; it must be {what}")
