"""Fewer arenas: two become one where the call still keeps its limit, as long as there is any such pair.

Where there are many, neighbours in time go first: a stretch of them becomes one arena, or is cut in halves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symalloc.planner.buffers.call_columns import Held, bounds_of
from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.search.grid import Values

MOST_TRIED = 400  # pairs
MANY = 60  # arenas, of which not every pair is looked at
REACH = 4  # arenas behind one that it is joined with where there are many
MOST_TOGETHER = 96  # tensors in an arena made of neighbours: many of different sizes take long to stack
MOST_WORK = 40_000_000  # sums of bytes at one column and binding
TRIAL = 2000  # what one trial counts, however short


def merged_arenas(memory: CallTimeline, groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return `groups` with some of them joined; results and what lies in their memory stay as they are.

    Nothing exceeds the limit that did not before, nor do the arenas take more together than they did, or than
    the floor.
    """
    kept = [list(group) for group in groups if memory.tenants[group[0]].kept]
    own = [list(group) for group in groups if not memory.tenants[group[0]].kept]
    if len(own) < 2:
        return [*kept, *own]
    return [*kept, *_Merging(memory, own, memory.taken(kept)).run()]


class _Merging:
    """The groups as they are being joined; `spare` bytes are left at each column."""

    def __init__(self, memory: CallTimeline, groups: Sequence[list[int]], beside: Values) -> None:
        self.memory = memory
        self.groups = sorted(groups, key=lambda group: min(memory.tenants[i].made for i in group))
        taken = memory.own(self.groups)
        most = np.maximum(memory.floor, taken.max(axis=0, initial=0.0))
        self.spare = np.minimum(memory.limit - beside, most) - taken
        self.many, self.work = len(groups) > MANY, 0
        self._spare_of: dict[tuple[int, ...], Values] = {}

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
        if len(groups) == 2 and memory.straight and self.hopeless(*groups):
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
        if (change + np.maximum(before, 0.0)).min(initial=0.0) < -0.5:
            return None
        self.spare[first:last] += change
        self._spare_of.clear()
        return together

    def hopeless(self, left: Sequence[int], right: Sequence[int]) -> bool:
        """Return whether one of two arenas that are not held at one time is too large for the time of the
        other; the function is straight.
        """
        memory = self.memory
        ((_, begin, end),), ((_, first, last),) = memory.reserved(left), memory.reserved(right)
        if begin < last and first < end:
            return False
        more = memory.height(right) - memory.height(left)
        return bool((more > self.spare_of(left) + 0.5).any() or (-more > self.spare_of(right) + 0.5).any())

    def spare_of(self, group: Sequence[int]) -> Values:
        """The bytes that are left at least while the arena of `group` is there, none where it is too much."""
        key = tuple(group)
        if key not in self._spare_of:
            ((_, begin, end),) = self.memory.reserved(group)
            self._spare_of[key] = self.spare[begin:end].min(axis=0, initial=np.inf).clip(0.0)
        return self._spare_of[key]


def _add(spare: Values, held: Sequence[Held], size: Values, first: int) -> None:
    """Add `size` while it is held to `spare`, whose first column is `first`."""
    for _, begin, end in held:
        spare[begin - first : end - first] += size
