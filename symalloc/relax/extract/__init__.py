"""A Relax module as a memory program: `extract` for speed, `locate` with spans into the printed script."""

from symalloc.relax.extract.extract_module import extract, locate

__all__ = ["extract", "locate"]
