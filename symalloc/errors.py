"""The errors that public functions raise for what a caller can mend.  Every room may raise them."""

from __future__ import annotations


class SymallocError(Exception):
    """Base of the errors of the public functions; the text is meant for a person."""


class UsageError(SymallocError, ValueError):
    """An argument, option, assumption, rule or configuration makes no sense: the text says which."""


class RunError(SymallocError):
    """A module cannot be read, planned, built or run as asked: the text says why."""
