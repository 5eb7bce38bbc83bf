"""Results shown in a notebook or as text: the renderers of `symalloc.report` are imported when they are used.

Every room may import this module, as it may import `symalloc.errors`.
"""

from __future__ import annotations

from importlib import import_module


def rendered(renderer: str, value: object) -> str:
    """Return what the function `renderer` of `symalloc.report.notebook` makes of `value`."""
    text: str = getattr(import_module("symalloc.report.notebook"), renderer)(value)
    return text


def counted(count: int, what: str) -> str:
    """Return `1 tensor`, `2 tensors`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
