"""Checks of what callers give to public functions.  Every room may use them."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import TypeGuard

from symalloc.errors import UsageError, meant

_MOST_SHOWN = 60  # characters of a value


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


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise UsageError where the argument `name` is none of its `choices`."""
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(choices)
        raise UsageError(f"{name} is {shown(value)}; it must be one of {known}{meant(value, choices)}")


def require_flag(name: str, value: object) -> None:
    """Raise UsageError where the argument `name` is neither True nor False."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {shown(value)}; it must be True or False")


def require_whole(name: str, value: object, least: int, most: int | None = None) -> int:
    """Return the whole number that the argument `name` is; raise UsageError for none, or one out of range."""
    try:
        number = None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < least:
        raise UsageError(f"{name} is {shown(value)}; it must be a whole number of at least {least}")
    if most is not None and number > most:
        raise UsageError(f"{name} is {shown(value)}; it must be at most {most}")
    return number


def require_seconds(name: str, value: object) -> float:
    """Return the duration that the argument `name` is; raise UsageError for what is no positive number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not value > 0:  # type: ignore[operator]
        raise UsageError(f"{name} is {shown(value)}; it must be a number of seconds, more than 0")
    return float(value)  # type: ignore[arg-type]


def require_text(name: str, value: object) -> str:
    """Return the text that the argument `name` is; raise UsageError for anything else."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is {shown(value)}; it must be a text")
    return value


def require_texts(name: str, value: object) -> tuple[str, ...]:
    """Return the texts of the argument `name`, which may be a single one; raise UsageError for no texts."""
    texts = [value] if isinstance(value, str) else value
    if _is_several(texts):
        return tuple(require_text(f"one of {name}", text) for text in texts)
    raise UsageError(f"{name} is {shown(value)}; it must be a text or a list of texts")


def require_path(name: str, value: object) -> Path:
    """Return the path that the argument `name` is; raise UsageError for what the system takes for none."""
    if not isinstance(value, str | Path):
        raise UsageError(f"{name} is {shown(value)}; it must be a path")
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
    if isinstance(value, str | Path):
        return (require_path(name, value),)
    if not _is_several(value):
        raise UsageError(f"{name} is {shown(value)}; it must be a path or a list of paths")
    return tuple(require_path(name, each) for each in value)


def _is_several(value: object) -> TypeGuard[Iterable[object]]:
    """Return whether `value` can be gone through as a list can: bytes and the keys of a mapping are none."""
    return isinstance(value, Iterable) and not isinstance(value, bytes | Mapping)
