"""Lists of numbers for the native library, one after the other."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain


def lists_of(lists: Sequence[Sequence[int]]) -> bytes:
    """Return the number of `lists`, where each starts, where the last ends, and all items in turn: int32."""
    starts = accumulate(map(len, lists), initial=0)
    return array("i", chain((len(lists),), starts, chain.from_iterable(lists))).tobytes()


def records_of(lists: Sequence[Iterable[Sequence[int]]]) -> bytes:
    """Return lists of records, in the place of each its numbers."""
    return lists_of([list(chain.from_iterable(records)) for records in lists])
