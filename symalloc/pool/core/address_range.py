"""One address range of the reference pool: its free intervals, its pages, and what its thread caches.

The pool decides how much is given back and where memory comes from; the range knows where it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from mmap import PAGESIZE

from symalloc.pool.core.free_list import FreeList, round_up
from symalloc.pool.core.page_table import PageTable
from symalloc.pool.core.pool_options import PoolOptions
from symalloc.pool.core.thread_cache import ThreadCache

CROWD = 128  # free intervals; beyond it, a place is chosen with care


class AddressRange:
    """The free list and the page table of one address range, and what its thread caches of it."""

    __slots__ = ("cache", "capacity", "free_list", "page", "pages")

    def __init__(self, options: PoolOptions) -> None:
        self.free_list = FreeList(options.range_capacity)
        self.page, self.capacity = options.page, options.range_capacity
        self.pages = PageTable(min(options.page, PAGESIZE))
        self.cache = ThreadCache(bin_largest=options.bin_largest, bin_capacity=options.bin_capacity)

    @property
    def crowded(self) -> bool:
        """True where the range has many free intervals."""
        return len(self.free_list) > CROWD

    def decommit_free(self, nbytes: int) -> int:
        """Give back `nbytes` bytes of free pages, or all there are, the highest first; return the bytes.

        Of neighbours as many go at once as are wanted.
        """
        return self._decommit_in(reversed(self.free_list), nbytes)

    def decommit_fitting(self, nbytes: int) -> int:
        """The same, but where few intervals are free, in few pieces: from the smallest interval that is large
        enough, and where none is, from the largest.
        """
        if self.crowded:
            return self.decommit_free(nbytes)
        by_size = sorted(self.free_list, key=lambda each: (each[1] - each[0], -each[0]))
        fits = sum(end - start < nbytes for start, end in by_size)
        return self._decommit_in(by_size[fits:] + by_size[:fits][::-1], nbytes)

    def _decommit_in(self, intervals: Iterable[tuple[int, int]], nbytes: int) -> int:
        given = 0
        for start, end in intervals:
            first, last = -(-start // self.page), end // self.page
            while first < last and given < nbytes:
                unit = self.pages.highest_backed(first * self.page, last * self.page)
                if unit is None:
                    break
                last = unit * self.pages.size // self.page + 1
                low = last - 1
                while low > first and given + (last - low) * self.page < nbytes and self._holds(low - 1):
                    low -= 1
                given += self.pages.decommit(low * self.page, last * self.page)
                last = low
            if given >= nbytes:
                break
        return given

    def decommit_fragments(self, nbytes: int, kept: range) -> int:
        """Give back `nbytes` bytes of the system's pages that are free, of pages of the pool that are not all
        free, or all there are, the highest first, but none of the pages `kept`; return the bytes.

        What is free in a page goes at once.
        """
        given, unit, within = 0, self.pages.size, -1
        for start, end in reversed(self.free_list):
            first, last = round_up(start, unit), end // unit * unit
            while (highest := self.pages.highest_backed(first, last)) is not None:
                page = highest * unit // self.page
                if given >= nbytes and page != within:
                    return given
                last = max(page * self.page, first)
                if page not in kept:
                    within = page
                    given += self.pages.decommit(last, min(end // unit * unit, (page + 1) * self.page))
        return given

    def commit_ahead(self, nbytes: int) -> None:
        """Back up to `nbytes` bytes of whole pages at the end of the range, where no block is."""
        start, end = next(reversed(self.free_list), (0, 0))
        start = round_up(start, self.page)
        nbytes = min(nbytes, end - start) // self.page * self.page
        if nbytes > 0 and end == self.capacity:
            self.pages.commit(start, nbytes, self.page)

    def _holds(self, page: int) -> bool:
        return self.pages.highest_backed(page * self.page, (page + 1) * self.page) is not None

    def free_pages(self) -> int:
        """Bytes of the pages that are wholly free and backed, at least in part."""
        count, backed = 0, self.pages.end + self.page
        for start, end in self.free_list:
            count += sum(map(self._holds, range(-(-start // self.page), min(end, backed) // self.page)))
        return self.page * count

    def decommit_units(self) -> None:
        """Give back all free pages of the system."""
        unit = self.pages.size
        for start, end in reversed(self.free_list):
            self.pages.decommit(round_up(start, unit), end // unit * unit)

    def tightest(self, size: int, align: int, grain: int) -> tuple[int, int]:
        """The fewest bytes to commit for a block, and the lowest such place."""
        return min((self.pages.missing(offset, size, grain), offset) for offset in self.places(size, align))

    def places(self, size: int, align: int) -> Iterator[int]:
        """The lowest multiple of `align` at which a block fits, in each free interval, and the highest where
        something lies above.
        """
        for start, end in self.free_list:
            low, high = round_up(start, align), (end - size) // align * align
            for offset in (low,) if end == self.capacity else (low, high):
                if start <= offset <= end - size:
                    yield offset

    def largest_free(self) -> int:
        """Bytes of the largest free interval."""
        return max((end - start for start, end in self.free_list), default=0)

    def largest_backed(self) -> int:
        """Bytes of the largest free piece that lies in a backed page, all wholly free pages of the system
        having been given back.
        """
        page, pieces = self.pages.size, [0]
        for start, end in self.free_list:
            first, last = min(round_up(start, page), end), max(end // page * page, start)
            edges = [(a, b) for a, b in ((start, first), (last, end)) if a < b]
            pieces += [b - a for a, b in edges if not self.pages.missing(a, b - a, page)]
        return max(pieces)
