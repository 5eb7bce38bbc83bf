"""A Relax module as a memory program, with places in its author's text or in the script that TVM prints."""

from symalloc.relax.extract.extract_module import extract, extract_numbered

__all__ = ["extract", "extract_numbered"]
