"""The errors that public functions raise for what a caller can mend.  Every room may raise them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index


class SymallocError(Exception):
    """Base of the errors of the public functions; the text is meant for a person."""


class UsageError(SymallocError, ValueError):
    """An argument, option, assumption, rule or configuration makes no sense: the text says which."""


class RunError(SymallocError):
    """A module cannot be read, planned, built or run as asked: the text says why."""


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise UsageError where the argument `name` is none of its `choices`."""
    if value not in choices:
        raise UsageError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")


def require_whole(name: str, value: object, least: int) -> None:
    """Raise UsageError where the argument `name` is no whole number of at least `least`."""
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not whole or index(value) < least:  # type: ignore[arg-type]
        raise UsageError(f"{name} is {value!r}; it must be a whole number of at least {least}")
