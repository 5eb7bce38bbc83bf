"""Fewer arenas: two become one where the call still keeps its limit, as long as there is any such pair."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symalloc.planner.buffers.call_timeline import CallTimeline, Held
from symalloc.planner.search.grid import Values

MOST_TRIED = 400  # pairs


def merged_arenas(memory: CallTimeline, groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return `groups` with some of them joined; results and what lies in their memory stay as they are.

    Nothing exceeds the limit that did not before, nor do the arenas take more together than they did, or than
    lies in them.
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
        taken = memory.taken(self.groups) - memory.beside
        together = memory.load([i for group in self.groups for i in group]).max(axis=0, initial=0.0)
        most = np.maximum(together, taken.max(axis=0, initial=0.0))
        self.spare = np.minimum(memory.limit - beside, most) - taken

    def run(self) -> list[list[int]]:
        """Join groups, each with those behind it, and return what is left."""
        first = tried = 0
        while first < len(self.groups):
            second = first + 1
            while second < len(self.groups) and tried < MOST_TRIED:
                tried += 1
                second += not self.joined(first, second)
            first += 1
        return self.groups

    def joined(self, first: int, second: int) -> bool:
        """Join two groups where there is room for that; return whether there is."""
        memory = self.memory
        both = sorted((*self.groups[first], *self.groups[second]))
        if not memory.possible(both):
            return False
        spare = self.spare.copy()
        for group in (self.groups[first], self.groups[second]):
            _add(spare, memory.reserved(group), memory.height(group))
        _add(spare, memory.reserved(both), -memory.height(both))
        if (np.minimum(spare, self.spare) < np.minimum(self.spare, -0.5)).any():
            return False
        self.groups[first] = both
        del self.groups[second]
        self.spare = spare
        return True


def _add(spare: Values, held: Sequence[Held], size: Values) -> None:
    for _, begin, end in held:
        spare[begin:end] += size
