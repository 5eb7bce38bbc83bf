"""The errors that public functions raise for what a caller can mend.  Every room may raise them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


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
