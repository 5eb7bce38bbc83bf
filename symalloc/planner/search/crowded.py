"""Packings where so much is live at once that pairs cannot be looked at: one pass through time for each.

Memory is given out and taken back as an allocator does it, by best fit, forwards or backwards in time; or
buffers are only put in an order.  Any order makes a right stacking, so holes in live ranges are passed over.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from symalloc.planner.search.greedy import by_offset
from symalloc.planner.search.search_instance import SearchInstance


def crowded_orders(problem: SearchInstance, points: Sequence[int]) -> Iterator[list[int]]:
    """Yield orders of the buffers of `problem`, bottom first: a few for any sizes, then for those at each of
    `points`.
    """
    hulls = [(b.live[0][0], b.live[-1][1]) if b.live else (0, 0) for b in problem.buffers]
    everything = range(len(problem))
    yield sorted(everything, key=lambda i: (-hulls[i][1], hulls[i][0], i))
    yield sorted(everything, key=lambda i: (hulls[i][0], -hulls[i][1], i))
    mirrored = [(-end, -begin) for begin, end in hulls]
    for point in points:
        sizes = problem.sizes_at(point)
        for lives in (hulls, mirrored):
            yield by_offset(_given_out(lives, sizes), sizes)


def _given_out(lives: Sequence[tuple[int, int]], sizes: Sequence[int]) -> list[int]:
    """The offsets that best fit gives, in bytes; of what begins together the larger first."""
    begins = sorted(range(len(lives)), key=lambda i: (lives[i][0], -sizes[i], i))
    ends = sorted(range(len(lives)), key=lambda i: (lives[i][1], i))
    offsets, heap, gone = [0] * len(lives), _Gaps(), 0
    for i in begins:
        while lives[ends[gone]][1] <= lives[i][0]:
            heap.give_back(offsets[ends[gone]], sizes[ends[gone]])
            gone += 1
        offsets[i] = heap.take(sizes[i])
    return offsets


@dataclass(slots=True)
class _Gaps:
    """The free stretches below `top`, none next to another: by size, by start and by end."""

    top: int = 0
    by_size: list[tuple[int, int]] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def take(self, size: int) -> int:
        """Take the smallest gap that is large enough, or what lies above all; return its start."""
        if size == 0:
            return 0
        place = bisect_left(self.by_size, (size, -1))
        if place < len(self.by_size):
            length, start = self.by_size[place]
            self.drop(start, length)
            self.add(start + size, length - size)
            return start
        last = self.ends.get(self.top)  # free up to the top, but not large enough
        start = self.top if last is None else last
        if last is not None:
            self.drop(last, self.top - last)
        self.top = start + size
        return start

    def give_back(self, start: int, size: int) -> None:
        """Free `size` bytes from `start`."""
        end = start + size
        if size and start in self.ends:
            before = self.ends[start]
            self.drop(before, start - before)
            start = before
        if size and end in self.starts:
            after = self.starts[end]
            self.drop(end, after - end)
            end = after
        self.add(start, end - start)

    def add(self, start: int, size: int) -> None:
        if size:
            insort(self.by_size, (size, start))
            self.starts[start], self.ends[start + size] = start + size, start

    def drop(self, start: int, size: int) -> None:
        del self.by_size[bisect_left(self.by_size, (size, start))]
        del self.starts[start], self.ends[start + size]
