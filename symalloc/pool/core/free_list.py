"""The free intervals of one address range, in address order, merged with their neighbours at once.

Address-ordered first fit (Knuth, The Art of Computer Programming 1, 2.5; Wilson et al. 1995): the lowest
interval that is large enough serves, which keeps live blocks low and the free rest in one piece at the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator


def round_up(value: int, multiple: int) -> int:
    """The least multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


class FreeList:
    """Free intervals [start, end) of a range of `capacity` bytes; at first the whole range is one.

    Invariant: `_starts` and `_ends` ascend, and no two intervals touch.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self, capacity: int) -> None:
        self._starts = [0]
        self._ends = [capacity]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The intervals, lowest first."""
        return zip(self._starts, self._ends, strict=True)

    def __reversed__(self) -> Iterator[tuple[int, int]]:
        """The intervals, highest first."""
        return zip(reversed(self._starts), reversed(self._ends), strict=True)

    def find(self, nbytes: int, align: int) -> int | None:
        """The lowest multiple of `align` at which `nbytes` free bytes start; None: there is none."""
        for start, end in zip(self._starts, self._ends, strict=True):
            if end - start >= nbytes:
                offset = round_up(start, align)
                if end - offset >= nbytes:
                    return offset
        return None

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
