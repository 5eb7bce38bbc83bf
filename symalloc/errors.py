"""The errors that public functions raise for what a caller can mend.  Every room may raise them."""

from __future__ import annotations

from collections.abc import Sequence


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
