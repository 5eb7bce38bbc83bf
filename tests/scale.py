"""How much the tests try: a part of each campaign in every run, all of it where SYMALLOC_TESTS is `nightly`.

A campaign is a test of many programs, models, seeds or combinations of one kind (CONTRIBUTING.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import product
from typing import TypeVar

NIGHTLY = os.environ.get("SYMALLOC_TESTS") == "nightly"

T, U = TypeVar("T"), TypeVar("U")


def tries(daily: int, nightly: int) -> int:
    """Return how many examples to try: `daily`, or `nightly` in the nightly run."""
    return nightly if NIGHTLY else daily


def part(whole: Iterable[T], step: int) -> list[T]:
    """Return every `step`-th of `whole`, or all in the nightly run."""
    return list(whole)[:: tries(step, 1)]


def pairs(ones: Iterable[T], others: Iterable[U]) -> list[tuple[T, U]]:
    """Return so many pairs that each value stands in one, or all in the nightly run."""
    first, second = list(ones), list(others)
    if NIGHTLY:
        return list(product(first, second))
    count = max(len(first), len(second))
    return [(first[i % len(first)], second[i % len(second)]) for i in range(count)]
