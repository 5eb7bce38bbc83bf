"""Fewer arenas: two become one where the call still keeps its limit, as long as there is any such pair.

Where there are many, neighbours in time go first: a stretch of them becomes one arena, or is cut in halves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symalloc.planner.buffers.call_columns import Held, bounds_of
from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.buffers.native_arenas import MergeStart, merge_natively
from symalloc.planner.grid import Values

MOST_TRIED = 400  # pairs
MANY = 60  # arenas, of which not every pair is looked at
REACH = 4  # arenas behind one that it is joined with where there are many
MOST_TOGETHER = 96  # tensors in an arena made of neighbours: many of different sizes take long to stack
MOST_WORK = 40_000_000  # sums of bytes at one column and binding
TRIAL = 2000  # what one trial counts, however short
SLACK = 0.5  # bytes: less is an error of rounding


def merged_arenas(memory: CallTimeline, groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return `groups` with some of them joined; results and what lies in their memory stay as they are.

    Nothing exceeds the limit that did not before, nor do the arenas take more together than they did, or than
    the floor.
    """
    kept = [list(group) for group in groups if memory.tenants[group[0]].kept]
    own = [list(group) for group in groups if not memory.tenants[group[0]].kept]
    if len(own) < 2:
        return [*kept, *own]
    own.sort(key=lambda group: min(memory.tenants[i].made for i in group))
    return [*kept, *_merged(memory, _start(memory, own, memory.taken(kept)))]


def _start(memory: CallTimeline, groups: Sequence[Sequence[int]], beside: Values) -> MergeStart:
    """Return what is spare of the limit, and of the most that the arenas take together or the floor."""
    taken = memory.own(groups)
    most = taken if memory.by_column else taken.max(axis=0, initial=0.0)
    spare = np.minimum(memory.limit - beside, np.maximum(memory.floor, most)) - taken
    return MergeStart(groups, spare, len(groups) > MANY)


def _merged(memory: CallTimeline, start: MergeStart) -> list[list[int]]:
    """Return what is left of groups, by the library where it is there."""
    if memory.native is None:
        return _Merging(memory, start).run()
    return merge_natively(memory.native, start, MOST_TRIED, REACH, MOST_TOGETHER, MOST_WORK, TRIAL)


class _Merging:
    """The groups as they are being joined; `spare` bytes are left at each column."""

    def __init__(self, memory: CallTimeline, start: MergeStart) -> None:
        self.memory, self.many, self.work = memory, start.many, 0
        self.groups = [list(group) for group in start.groups]
        self.spare = start.spare.copy()

    def run(self) -> list[list[int]]:
        """Join groups, each with those behind it, and return what is left."""
        if self.many:
            self.groups = self.stretches(self.groups)
        reach, most = (REACH, REACH * len(self.groups)) if self.many else (len(self.groups), MOST_TRIED)
        first = tried = 0
        while first < len(self.groups):
            second = first + 1
            while second < min(len(self.groups), first + 1 + reach) and tried < most:
                tried = most if self.work > MOST_WORK else tried + 1
                both = self.joined([self.groups[first], self.groups[second]])
                if both is None:
                    second += 1
                else:
                    self.groups[first] = both
                    del self.groups[second]
            first += 1
        return self.groups

    def stretches(self, groups: list[list[int]]) -> list[list[int]]:
        """Return `groups`, in the order of the text, with as many neighbours joined as there is room for."""
        if len(groups) == 1 or self.work > MOST_WORK:
            return groups
        whole = self.joined(groups)
        if whole is not None:
            return [whole]
        middle = len(groups) // 2
        return [*self.stretches(groups[:middle]), *self.stretches(groups[middle:])]

    def joined(self, groups: Sequence[list[int]]) -> list[int] | None:
        """Return the members of `groups` in one where there is room for that, which is taken then."""
        memory = self.memory
        together = sorted(i for group in groups for i in group)
        if (self.many and len(together) > MOST_TOGETHER) or not memory.possible(together):
            return None
        held = [memory.reserved(group) for group in groups]
        held_together = memory.reserved(together)
        first, last = bounds_of(one for each in (*held, held_together) for one in each)
        before = self.spare[first:last]
        self.work += TRIAL + before.size
        change = np.zeros_like(before)
        for group, each in zip(groups, held, strict=True):
            _add(change, each, memory.height(group), first)
        _add(change, held_together, -memory.height(together), first)
        # no more than is spare, and nothing where none is
        if (change + np.maximum(before, 0.0)).min(initial=0.0) < -SLACK:
            return None
        self.spare[first:last] += change
        return together


def _add(spare: Values, held: Sequence[Held], size: Values, first: int) -> None:
    """Add `size` while it is held to `spare`, whose first column is `first`."""
    for _, begin, end in held:
        part = spare[begin - first : end - first]
        part += size  # in place: an assignment to the slice would copy it
