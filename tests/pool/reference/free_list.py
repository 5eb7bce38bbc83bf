"""The free intervals of one address range, in address order, merged with their neighbours at once.

Blocks of up to BEST_FIT bytes take the smallest interval that is large enough: among many blocks of many
sizes that wastes least (Johnstone and Wilson, The Memory Fragmentation Problem: Solved?, 1998).  Larger ones
take the lowest (Knuth, The Art of Computer Programming 1, 2.5), which keeps the free rest in one piece at the
end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from symalloc.pool.pool_options import round_up

BEST_FIT = 256 * 2**10  # bytes


class FreeList:
    """Free intervals [start, end) of a range of `capacity` bytes; at first the whole range is one.

    Invariant: `_starts` and `_ends` ascend, and no two intervals touch.
    """

    def __init__(self, capacity: int) -> None:
        self._starts = [0]
        self._ends = [capacity]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __reversed__(self) -> Iterator[tuple[int, int]]:
        return zip(reversed(self._starts), reversed(self._ends), strict=True)

    def find(self, nbytes: int, align: int) -> int | None:
        """The place of `nbytes` bytes, a multiple of `align`; None: there is none.

        It lies in the smallest interval that is large enough, the lowest of those of one size; for more than
        BEST_FIT bytes in the lowest of all.
        """
        found: tuple[int, int] | None = None
        for start, end in zip(self._starts, self._ends, strict=True):
            offset = round_up(start, align)
            if end - offset >= nbytes and (found is None or end - start < found[0]):
                found = end - start, offset
                if nbytes > BEST_FIT:
                    break
        return None if found is None else found[1]

    def __len__(self) -> int:
        return len(self._starts)

    def around(self, offset: int) -> tuple[int, int]:
        """The interval that `offset` lies in, which must be free."""
        index = bisect_right(self._starts, offset) - 1
        return self._starts[index], self._ends[index]

    def take(self, offset: int, nbytes: int) -> None:
        """Remove [offset, offset + nbytes), which must lie in one interval; the rest of it stays."""
        index = bisect_left(self._ends, offset + nbytes)
        start, end = self._starts[index], self._ends[index]
        left = [(s, e) for s, e in ((start, offset), (offset + nbytes, end)) if s < e]
        self._starts[index : index + 1] = [s for s, _ in left]
        self._ends[index : index + 1] = [e for _, e in left]

    def put(self, offset: int, nbytes: int) -> None:
        """Make [offset, offset + nbytes), which must not be free, free; merges it with what it touches."""
        start, end = offset, offset + nbytes
        first = last = bisect_left(self._starts, offset)
        if first and self._ends[first - 1] == start:
            first -= 1
            start = self._starts[first]
        if last < len(self._starts) and self._starts[last] == end:
            end = self._ends[last]
            last += 1
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
