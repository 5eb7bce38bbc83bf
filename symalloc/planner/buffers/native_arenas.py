"""Grouping tensors on the native library: the same decisions as in Python, from the same numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from symalloc.native.flat_lists import lists_of, shared
from symalloc.native.native_functions import arena_functions
from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.buffers.native_timeline import NativeTimeline
from symalloc.planner.grid import Values


class FitStart(NamedTuple):
    """The groups that are there before tensors are entered, and which of them are `opened` to others.

    `shares` says how large each tenant is.  `room` is what is left at each column, `spare` the same for
    arenas that lie in no result.  Tensors that are `counted` have memory there until they are entered.  With
    `spread`, there are at most so many groups, and as long as there are fewer, a tensor by all of which an
    arena would grow has one of its own.
    """

    groups: Sequence[Sequence[int]]
    opened: Sequence[bool]
    shares: Sequence[float]
    room: Values
    spare: Values
    counted: bool
    spread: int


def fit_natively(
    native: NativeTimeline,
    memory: CallTimeline,
    start: FitStart,
    order: Sequence[int],
    most_tried: int,
    most_work: int,
    trial: int,
) -> list[list[int]] | None:
    """Return the members of groups, as `_FirstFit.fitted`; raises MemoryError."""
    found = arena_functions.first_fit(
        native.made,
        array("d", start.shares).tobytes(),
        shared(memory.scale),
        shared(start.room),
        shared(start.spare),
        lists_of(start.groups),
        array("i", start.opened).tobytes(),
        array("i", order).tobytes(),
        start.counted,
        start.spread,
        most_tried,
        most_work,
        trial,
    )
    return None if found is None else list(_groups(found))


class MergeStart(NamedTuple):
    """The groups whose arenas are to be joined, and what is `spare` at each column.

    Where there are `many`, neighbours go first.
    """

    groups: Sequence[Sequence[int]]
    spare: Values
    many: bool


def merge_natively(
    native: NativeTimeline,
    start: MergeStart,
    most_tried: int,
    reach: int,
    most_together: int,
    most_work: int,
    trial: int,
) -> list[list[int]]:
    """Return what is left of the groups, as `_Merging.run`; raises MemoryError."""
    found = arena_functions.merge(
        native.made,
        shared(start.spare),
        lists_of(start.groups),
        start.many,
        most_tried,
        reach,
        most_together,
        most_work,
        trial,
    )
    return list(_groups(found))


def _groups(flat: bytes) -> Iterator[list[int]]:
    """Yield groups, in front of each of which is its size."""
    numbers = iter(memoryview(flat).cast("i").tolist())
    for count in numbers:
        yield list(islice(numbers, count))
