"""A partial packing, built from below, and what follows from it.

Every packing can be pushed down until each buffer lies at the bottom or on top of another.  The search
decides one buffer at a time: it lies at its lowest possible offset, or it does not, and then it lies on top
of a neighbour that is still to be placed.  A buffer may be decided when nothing that is left fits below it.

After Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning" (2023),
whose canonical solutions, section totals and monotonic floors are special cases; the bound within a clique is
that of one machine with release dates (Jackson 1955).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import add, itemgetter
from typing import TypeAlias

from symalloc.planner.exact.clique_instance import CliqueInstance

ABSENT = 1 << 62  # above every offset: the top of a buffer that is not there


# what `SearchState` keeps before a decision and restores behind it, by name
_ARRAYS = ("lowest", "ends", "left", "floors", "tops", "second_tops", "choices")

SavedState: TypeAlias = tuple[list[list[int]], int]
"""Copies of the arrays, and how many buffers were placed."""


class SearchState:
    """Lower bounds of the offsets of those left to place, in units, and per clique what they amount to.

    Invariant:  once `propagate` has returned True, no offset of a packing that is still possible is below
    `lowest`; `ends` are `lowest` and the size.  Per clique: `left` is the sum of sizes still to be placed,
    `floors` the least of their lower bounds, `tops` and `second_tops` the two least ends that they can have,
    `choices` how many of them may come next from below.
    """

    def __init__(self, instance: CliqueInstance, capacity: int) -> None:
        """Nothing placed yet; `capacity` is in bytes and holds each buffer by itself."""
        self.instance = instance
        self.capacity = -(-capacity // instance.unit)
        self.highest = [(capacity - nbytes) // instance.unit for nbytes in instance.nbytes]
        self.weights = [0.0] * len(instance.members)
        self._select = [_selector(mine) for mine in instance.cliques]
        self.clear()

    def clear(self) -> None:
        """Takes everything out; `weights`, how often each clique was the reason of a failure, stay."""
        count = len(self.instance.members)
        self.lowest = [0] * len(self.instance.ids)
        self.ends = list(self.instance.sizes)
        self.placed = [False] * len(self.instance.ids)
        self.trail: list[int] = []
        self.members = [list(members) for members in self.instance.members]
        self.left = [sum(self.instance.sizes[i] for i in members) for members in self.members]
        self.floors = [0] * count
        self.tops = [ABSENT] * count
        self.second_tops = [ABSENT] * count
        self.choices = [0] * count
        self._changed = set(range(count))

    def snapshot(self) -> SavedState:
        """Return the state as it is; only what is propagated may be kept."""
        return [getattr(self, name)[:] for name in _ARRAYS], len(self.trail)

    def restore(self, kept: SavedState) -> None:
        """Go back to `kept`, which was taken on the way here."""
        arrays, placed = kept
        for name, values in zip(_ARRAYS, arrays, strict=True):
            setattr(self, name, values[:])
        while len(self.trail) > placed:
            buffer = self.trail.pop()
            self.placed[buffer] = False
            for clique in self.instance.cliques[buffer]:
                self.members[clique].append(buffer)
        self._changed.clear()

    def place(self, buffer: int) -> bool:
        """Puts `buffer` at its lowest offset, everything left beside it above; False where nothing can
        follow.
        """
        size, mine = self.instance.sizes[buffer], self.instance.cliques[buffer]
        self.placed[buffer] = True
        self.trail.append(buffer)
        for clique in mine:
            self.left[clique] -= size
            self.members[clique].remove(buffer)
        self._changed.update(mine)
        top = self.ends[buffer]
        for other in self.instance.neighbours[buffer]:
            if self.lowest[other] < top and not self.placed[other] and not self._raise(other, top):
                return False
        return self.propagate()

    def exclude(self, buffer: int) -> bool:
        """Keeps `buffer` off its lowest offset, where nothing else fits below it; False where nothing can
        follow.
        """
        return self._raise(buffer, self._support(buffer)) and self.propagate()

    def can_be_decided(self, buffer: int) -> bool:
        """Return whether nothing that is left fits below `buffer` at its lowest offset."""
        return min(self._select[buffer](self.tops)) > self.lowest[buffer]

    def propagate(self) -> bool:
        """Raises lower bounds until nothing follows any more; False where no packing is left.

        What cannot come next in some clique does not lie where it is, unless something fits below it there.
        """
        while self._changed:
            changed = sorted(self._changed)
            self._changed.clear()
            suspects: set[int] = set()
            for clique in changed:
                if not self._bound(clique, suspects):
                    return self._fail(clique)
            for buffer in sorted(suspects):
                if self.can_be_decided(buffer) and not self._raise(buffer, self._support(buffer)):
                    return False
        return True

    def _bound(self, clique: int, suspects: set[int]) -> bool:
        """Brings the figures of `clique` up to date; adds to `suspects` those that cannot come next in it.

        False where its members cannot all end within the capacity: those whose lower bound is at least some
        offset come one after the other from there.  Only a suspect can be the lowest of such a set.
        """
        members, lowest, sizes = self.members[clique], self.lowest, self.instance.sizes
        members.sort(key=lowest.__getitem__)
        offsets = [lowest[i] for i in members]
        cut = bisect_right(offsets, self.capacity - self.left[clique])
        if cut < len(members):
            late = members[cut:]
            loads = accumulate(map(sizes.__getitem__, reversed(late)))
            if max(map(add, loads, reversed(offsets))) > self.capacity:
                return False
            suspects.update(late)
        ends = sorted(map(self.ends.__getitem__, members))
        self.tops[clique], self.second_tops[clique], *_ = (*ends[:2], ABSENT, ABSENT)
        self.floors[clique] = offsets[0] if offsets else ABSENT
        self.choices[clique] = cut
        return True

    def _support(self, buffer: int) -> int:
        """The least end that a neighbour left to place can have.  `buffer` itself counts in `tops`."""
        select = self._select[buffer]
        least = min(select(self.tops))
        return least if least < self.ends[buffer] else min(select(self.second_tops))

    def _raise(self, buffer: int, offset: int) -> bool:
        """Lets `buffer` lie no lower than `offset`; False where that leaves it no place."""
        offset += -offset % self.instance.alignments[buffer]
        if offset > self.highest[buffer]:
            return self._fail(self.instance.cliques[buffer][0])
        self.lowest[buffer] = offset
        self.ends[buffer] = offset + self.instance.sizes[buffer]
        self._changed.update(self.instance.cliques[buffer])
        return True

    def _fail(self, clique: int) -> bool:
        """Counts a failure against `clique`; always False."""
        self.weights[clique] += 1
        self._changed.clear()
        return False


def _selector(places: tuple[int, ...]) -> Callable[[list[int]], Sequence[int]]:
    """Picks the elements of a list at `places`, also where there is only one place."""
    return itemgetter(slice(places[0], places[0] + 1)) if len(places) == 1 else itemgetter(*places)
