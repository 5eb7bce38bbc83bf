"""How much the tests try: enough in every run, more where SYMALLOC_TESTS is `nightly` (`make nightly`)."""

from __future__ import annotations

import os

NIGHTLY = os.environ.get("SYMALLOC_TESTS") == "nightly"


def tries(daily: int, nightly: int) -> int:
    """Return how many examples to try: `daily`, or `nightly` in the nightly run."""
    return nightly if NIGHTLY else daily
