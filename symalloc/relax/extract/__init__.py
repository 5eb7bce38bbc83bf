"""A Relax module as a memory program: `extract` without places in a printed script, `locate` with them.

`extract_numbered` prints only when places are asked for.
"""

from symalloc.relax.extract.extract_module import extract, extract_numbered, locate

__all__ = ["extract", "extract_numbered", "locate"]
