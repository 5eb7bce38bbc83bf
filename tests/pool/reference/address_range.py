"""The address range of the reference pool: its free intervals, its pages, and what its thread caches.

The pool decides how much is given back and where memory comes from; the range knows where it lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import PAGESIZE

from symalloc.pool.pool_options import PoolOptions, round_up
from tests.pool.reference.free_list import FreeList
from tests.pool.reference.page_table import PageTable
from tests.pool.reference.thread_cache import ThreadCache

CAPACITY = 2**40  # bytes, where no option says
CROWD = 128  # free intervals; beyond it, a place is chosen with care


class AddressRange:
    """The free list and the page table of the range, and what its thread caches of it."""

    def __init__(self, options: PoolOptions) -> None:
        self.page, self.capacity = options.page, options.capacity or CAPACITY
        self.free_list = FreeList(self.capacity)
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
        given = 0
        for start, end in reversed(self.free_list):
            for first, last in self._runs(start, end):
                while first < last and given < nbytes:
                    low = max(first, last - -((given - nbytes) // self.page))
                    given += self.pages.decommit(low * self.page, last * self.page)
                    last = low
            if given >= nbytes:
                break
        return given

    def decommit_fitting(self, nbytes: int) -> int:
        """The same, but where few intervals are free, in few pieces: from the smallest run of pages that is
        large enough, and where none is, from the largest.
        """
        if self.crowded:
            return self.decommit_free(nbytes)
        given = 0
        while given < nbytes:
            wanted = -((given - nbytes) // self.page)
            runs = [(last - first, last) for free in self.free_list for first, last in self._runs(*free)]
            if not runs:
                break
            fits = [(count, -last) for count, last in runs if count >= wanted]
            count, last = (min(fits)[0], -min(fits)[1]) if fits else max(runs)
            given += self.pages.decommit((last - min(count, wanted)) * self.page, last * self.page)
        return given

    def _runs(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The runs [first, last) of pages in a free interval that hold memory, the highest first."""
        lowest, last = -(-start // self.page), end // self.page
        while lowest < last and (unit := self._highest(lowest, last)) is not None:
            last = unit * self.pages.size // self.page + 1
            first = last - 1
            while first > lowest and self._holds(first - 1):
                first -= 1
            yield first, last
            last = first

    def _highest(self, first: int, last: int) -> int | None:
        return self.pages.highest_backed(first * self.page, last * self.page)

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
        return self._highest(page, page + 1) is not None

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

    def backed_place(self, size: int, align: int) -> int | None:
        """A place where all pages of a block are backed, in the smallest free interval that has one; None:
        there is none, or the range is crowded.
        """
        intervals = sorted(self.free_list, key=lambda each: (each[1] - each[0], each[0]))
        places = (offset for each in intervals for offset in self._places(*each, size, align))
        return (
            None
            if self.crowded
            else next((p for p in places if not self.pages.missing(p, size, self.page)), None)
        )

    def tightest(self, size: int, align: int, grain: int) -> tuple[int, int]:
        """The fewest bytes to commit for a block, and the highest such place."""
        places = (offset for each in self.free_list for offset in self._places(*each, size, align))
        missing, offset = min((self.pages.missing(offset, size, grain), -offset) for offset in places)
        return missing, -offset

    def _places(self, start: int, end: int, size: int, align: int) -> Iterator[int]:
        """The places of a block at the ends of a free interval, and of the runs of free pages in it: the
        lowest multiple of `align` there, and the highest where something lies above.
        """
        edges = [
            (start, end),
            *((first * self.page, last * self.page) for first, last in self._runs(start, end)),
        ]
        for low, high in edges:
            ends = (round_up(low, align), (high - size) // align * align)
            for offset in ends[:1] if high == self.capacity else ends:
                if start <= offset <= end - size:
                    yield offset

    def largest_free(self) -> int:
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
