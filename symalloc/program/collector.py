"""Python's cyclic garbage collector, held back while many objects are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections(*, acyclic: bool = False) -> Iterator[None]:
    """Runs no collections inside: a lint makes some 100,000 objects that all stay in use.

    Where nothing inside makes cycles (`acyclic`), only collections of all objects look at what was made: the
    next one would take a tenth of the time of what ran inside, and find nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if acyclic and not gc.get_freeze_count():  # else what a program has frozen would thaw
                gc.freeze()
                gc.unfreeze()  # all that was frozen counts as old from here on
            gc.enable()
