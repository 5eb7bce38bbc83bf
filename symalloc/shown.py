"""Results that print themselves: the renderers of `symalloc.report` register the text of each kind.

Every room may import this module, as it may import `symalloc.errors`.
"""

from __future__ import annotations

from functools import singledispatch
from html import escape
from importlib import metadata


@singledispatch
def to_text(value: object) -> str:
    """Return what the command line prints of `value`."""
    raise TypeError(f"a {type(value).__name__} has no text")


class Shown:
    """A result that is printed as the command line prints it, and shown so in a notebook."""

    __slots__ = ()

    def __str__(self) -> str:
        return to_text(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def version_of(package: str, missing: str) -> str:
    """Return the version of an installed package, else `missing`."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return missing


def counted(count: int, what: str) -> str:
    """Return `1 tensor`, `2 tensors`, `1,000 tensors`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
