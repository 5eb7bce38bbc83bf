"""Results shown in a notebook or as text: the renderers of `symalloc.report` register how each kind is shown.

Every room may import this module, as it may import `symalloc.errors`.
"""

from __future__ import annotations

from functools import singledispatch
from importlib import metadata


@singledispatch
def to_html(value: object) -> str:
    """Return a piece of HTML that shows `value` and loads nothing."""
    raise TypeError(f"a {type(value).__name__} has no HTML")


@singledispatch
def to_text(value: object) -> str:
    """Return what the command line prints of `value`."""
    raise TypeError(f"a {type(value).__name__} has no text")


def version_of(package: str, missing: str) -> str:
    """Return the version of an installed package, else `missing`."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return missing


def counted(count: int, what: str) -> str:
    """Return `1 tensor`, `2 tensors`, `1,000 tensors`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
