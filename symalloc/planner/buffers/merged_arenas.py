"""Fewer arenas: two become one where the call still keeps its limit, as long as there is any such pair.

Where there are many, neighbours in time go first: a stretch of them becomes one arena, or is cut in halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from symalloc.planner.buffers.call_columns import Held, bounds_of
from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.search.grid import Values

MOST_TRIED = 400  # pairs
MANY = 60  # arenas, of which not every pair is looked at
REACH = 4  # arenas behind one that it is joined with where there are many
MOST_TOGETHER = 96  # tensors in an arena made of neighbours: many of different sizes take long to stack
MOST_WORK = 40_000_000  # sums of bytes at one column and binding
TRIAL = 2000  # what one trial counts, however short
SLACK = 0.5  # bytes: less is an error of rounding

Indices: TypeAlias = NDArray[np.int64]


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


class _GroupBounds(NamedTuple):
    """A row for each group of a straight function: the columns [begin, end) at which its arena is held, its
    height, and the bytes that count as left at those columns at least.
    """

    begins: Indices
    ends: Indices
    heights: Values
    least: Values


class _Merging:
    """The groups as they are being joined; `spare` bytes are left at each column."""

    def __init__(self, memory: CallTimeline, groups: Sequence[list[int]], beside: Values) -> None:
        self.memory = memory
        self.groups = sorted(groups, key=lambda group: min(memory.tenants[i].made for i in group))
        taken = memory.own(self.groups)
        most = taken if memory.by_column else taken.max(axis=0, initial=0.0)
        self.spare = np.minimum(memory.limit - beside, np.maximum(memory.floor, most)) - taken
        self.many, self.work = len(groups) > MANY, 0
        self._bounds: _GroupBounds | None = None

    def run(self) -> list[list[int]]:
        """Join groups, each with those behind it, and return what is left."""
        if self.many:
            self.groups = self.stretches(self.groups)
        reach, most = (REACH, REACH * len(self.groups)) if self.many else (len(self.groups), MOST_TRIED)
        first = tried = 0
        while first < len(self.groups):
            second = first + 1
            hopeless = self.hopeless(first, reach)
            while second < min(len(self.groups), first + 1 + reach) and tried < most:
                tried = most if self.work > MOST_WORK else tried + 1
                both = None
                if not hopeless[second - first - 1]:
                    both = self.joined([self.groups[first], self.groups[second]])
                if both is None:
                    second += 1
                else:
                    self.groups[first] = both
                    del self.groups[second]
                    hopeless = self.hopeless(first, reach)
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
        self._bounds = None
        return together

    def hopeless(self, first: int, reach: int) -> Sequence[bool]:
        """Return for each of the groups behind the one at `first` whether there is no room for both in one
        arena, as far as that is seen without adding up their tensors.

        That arena is at least as large as either of theirs.  Where only one of the two is held it takes the
        difference more, and between them all of it.
        """
        others = slice(first + 1, first + 1 + reach)
        if not self.memory.straight or not self.groups[others]:
            return [False] * len(self.groups[others])
        bounds = self._bounds = self._bounds or self.bounds()
        begin, end, here = int(bounds.begins[first]), int(bounds.ends[first]), bounds.heights[first]
        begins, ends, there = bounds.begins[others], bounds.ends[others], bounds.heights[others]
        before = self.running(begin, end)[np.maximum(np.minimum(begins, end) - begin, 0)]
        after = self.running(end, max(int(ends.max()), end))
        behind = np.where((begins < end)[:, None], after[np.maximum(ends - end, 0)], bounds.least[others])
        between = after[np.maximum(begins - end, 0)]
        more = there - here
        found = (more > before) | (-more > behind) | (np.maximum(here, there) > between)
        hopeless: list[bool] = np.logical_or.reduce(found, axis=1).tolist()
        return hopeless

    def running(self, begin: int, end: int) -> Values:
        """The least of the bytes that count as left at the columns from `begin` on, a row for each number of
        columns up to `end`.
        """
        found = np.full((end - begin + 1, self.spare.shape[1]), np.inf)
        np.maximum(self.spare[begin:end], 0.0, out=found[1:])
        self.work += found.size
        least: Values = np.minimum.accumulate(found, axis=0) + SLACK
        return least

    def bounds(self) -> _GroupBounds:
        """The bounds of the groups as they are."""
        held = [self.memory.reserved(group)[0] for group in self.groups]
        least = [np.minimum.reduce(self.spare[begin:end], axis=0, initial=np.inf) for _, begin, end in held]
        return _GroupBounds(
            np.array([begin for _, begin, _ in held]),
            np.array([end for _, _, end in held]),
            np.array([self.memory.height(group) for group in self.groups]),
            np.maximum(least, 0.0) + SLACK,
        )


def _add(spare: Values, held: Sequence[Held], size: Values, first: int) -> None:
    """Add `size` while it is held to `spare`, whose first column is `first`."""
    for _, begin, end in held:
        part = spare[begin - first : end - first]
        part += size  # in place: an assignment to the slice would copy it
