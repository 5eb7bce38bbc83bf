"""The reference pool: the native core must agree with it, address for address.

A pool owns an address range that is far larger than what is used of it; only pages in use cost memory.

1. A block comes from the cache of its thread where that holds one that suits (`thread_cache.py`).  It may
   be a little larger: the rest is the block's slack, until it is freed.
2. Otherwise a free interval of the range serves (`free_list.py`).  Where all its pages are backed, that is
   all.
3. Missing pages are backed, as long as that keeps the pool within its limits.
4. Where it would not, and few intervals are free, the smallest interval serves in which all pages of the
   block are backed.  Where there is none, the cache is given up: what it held may fill the gap.  Then the
   place is taken that lacks the fewest pages.
5. Where that is not enough, as many free pages elsewhere are given back: memory moves from intervals that
   nobody fits in to where it is wanted.  They come from the smallest run of free pages that is large enough,
   or from the largest, so that few pieces move; where many intervals are free, the highest go.  Where
   blocks lie in nearly all pages, and the soft limit is clearly exceeded, the system's pages that are free
   within the pool's are given back too, and some pages are backed at the end of the range in their stead.
6. Where that leaves the pool above the hard limit, slack is freed, and no block gets any from then on, all
   free pages are given back, and the place is sought that needs the fewest.  Where even that breaks the
   limit, the same is tried with the system's pages in place of the pool's.  Where that does, too, the
   allocation fails, and nothing has changed but that free memory was given back.

The policy knows the past only.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from symalloc.pool.native_pool import PoolStatistics
from symalloc.pool.pool_errors import OutOfMemoryError
from symalloc.pool.pool_options import ALIGNMENT, PoolOptions, round_up
from tests.pool.reference.address_range import AddressRange
from tests.pool.reference.decay import Decay
from tests.pool.reference.out_of_memory import does_not_fit, no_address_space
from tests.pool.reference.page_table import PageTable
from tests.pool.reference.thread_cache import Block

LEAST_SOFT = 2**21  # bytes; what little a small program saves is not worth the time
AHEAD = 2**21  # bytes
EXCESS = 64  # the soft limit is clearly exceeded by this share of it, and at least by LEAST_SOFT


class ReferencePool:
    """A pool for one thread that hands out addresses, from 0 on; nothing lies at them."""

    def __init__(self, options: PoolOptions | None = None) -> None:
        self.options = options or PoolOptions()
        self._range = AddressRange(self.options)
        self._blocks: dict[int, int] = {}  # address -> bytes asked for, of live blocks
        self.live = self.allocs = self.frees = self.refused = self.peak_reserved = 0
        self.used = 0  # bytes that the range has handed out, to callers or caches
        self.peak_used = 0
        self.peak_in_use = 0  # without what waited in the caches
        self._decay = None if self.options.decay is None else Decay(self.options.decay)
        self._slack: dict[int, int] = {}  # address -> bytes beyond its size, of live blocks that have any
        self.slack = 0  # bytes of all blocks
        self._scarce = False  # memory has been too scarce for slack
        self._operations = -1  # allocs and frees when a period began

    @property
    def reserved(self) -> int:
        return self.pages.reserved

    @property
    def pages(self) -> PageTable:
        return self._range.pages

    def alloc(self, nbytes: int, *, align: int = ALIGNMENT) -> int:
        """The address of `nbytes` bytes, a multiple of `align` (a power of two); blocks of no bytes are
        distinct too.  Raises OutOfMemoryError, PoolUsageError.
        """
        size = _block_size(nbytes)
        address = self._take_cached(size) if align <= ALIGNMENT else None
        if address is None:
            address = self._place(size, max(align, ALIGNMENT))
        self._blocks[address] = nbytes
        self.live += nbytes
        self.allocs += 1
        return address

    def free(self, address: int) -> None:
        nbytes = self._blocks.pop(address)
        self.live -= nbytes
        self.frees += 1
        slack = self._slack.pop(address, 0)
        self.slack -= slack
        size = _block_size(nbytes) + slack
        crowded, near = self._range.crowded, self._near()
        self._release(self._range.cache.put(address, size, peak=self.peak_in_use, crowded=crowded, near=near))

    def statistics(self) -> PoolStatistics:
        pages = self.pages
        return PoolStatistics(
            live=self.live,
            allocs=self.allocs,
            frees=self.frees,
            used=self.used,
            peak_used=self.peak_used,
            reserved=self.reserved,
            peak_reserved=self.peak_reserved,
            commits=pages.commits,
            committed=pages.committed,
            decommits=pages.decommits,
            decommitted=pages.decommitted,
            threads=1,
            refused=self.refused,
        )

    def trim(self) -> int:
        """Give every free page back; return the bytes."""
        self.flush()
        given = self._range.decommit_free(self._range.capacity)
        self._note_free()
        return given

    def decay_at(self, now: float) -> int:
        """At the end of a period, which `now` (seconds) may be, give back the free pages that nobody needed
        during it, and empty the caches if nothing was allocated or freed; return the bytes given back.
        """
        if self._decay is None or not self._decay.ended(now):
            return 0
        if self._operations == self.allocs + self.frees:
            self.flush()
        self._operations = self.allocs + self.frees
        before = self.reserved
        self._range.decommit_free(max(self._decay.needless(self._range.free_pages()), 0))
        self._decay.begin(now, self._range.free_pages())
        return before - self.reserved

    def _note_free(self) -> None:
        if self._decay is not None:
            self._decay.note(self._range.free_pages())

    def flush(self) -> None:
        self._release(self._range.cache.flush())

    def free_intervals(self) -> list[tuple[int, int]]:
        """The free parts [start, end), lowest first."""
        return list(self._range.free_list)

    def _near(self) -> bool:
        """True where blocks may have slack."""
        return self._range.crowded and not self._scarce

    def _take_cached(self, size: int) -> int | None:
        block = self._range.cache.take(size, near=self._near())
        if block is None:
            return None
        address, nbytes = block
        if nbytes > size:
            self._slack[address] = nbytes - size
            self.slack += nbytes - size
        return address

    def _free_slack(self) -> None:
        """Free the slack of all blocks; no block gets any from now on."""
        self._scarce = True
        sizes = {address: _block_size(self._blocks[address]) for address in self._slack}
        self._release([(address + sizes[address], slack) for address, slack in self._slack.items()])
        self._slack.clear()
        self.slack = 0

    def _place(self, size: int, align: int) -> int:
        try:
            return self._take(size, align)
        except OutOfMemoryError:
            self.refused += 1
            raise
        finally:
            self._note_free()

    def _take(self, size: int, align: int) -> int:
        chosen = self._range
        self._release(chosen.cache.let_go())
        offset, grain = chosen.free_list.find(size, align), self.options.page
        if offset is None or self._over(chosen.pages.missing(offset, size, grain), size):
            self._release(chosen.cache.large.flush())
            offset = chosen.backed_place(size, align)
            if offset is None:
                self.flush()
                offset = self._least_missing(size, align)
        if offset is None:
            raise OutOfMemoryError(no_address_space(size, chosen.largest_free(), chosen.capacity))
        chosen.free_list.take(offset, size)
        covered = range(offset // grain, -(-(offset + size) // grain))
        if not self._make_room(chosen.pages.missing(offset, size, grain), size, covered):
            chosen.free_list.put(offset, size)
            offset, grain = self._tightest(size, align)
            chosen.free_list.take(offset, size)
        chosen.pages.commit(offset, size, grain)
        self.used += size
        self.peak_used = max(self.peak_used, self.used)
        self.peak_in_use = max(self.peak_in_use, self._in_use())
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return offset

    def _least_missing(self, size: int, align: int) -> int | None:
        """The place that is taken; where that would break a limit, and few intervals are free, one that needs
        no page, or else the fewest.
        """
        chosen, grain = self._range, self.options.page
        offset = chosen.free_list.find(size, align)
        if offset is None or chosen.crowded:
            return offset
        if not self._over(chosen.pages.missing(offset, size, grain), size):
            return offset
        backed = chosen.backed_place(size, align)
        return chosen.tightest(size, align, grain)[1] if backed is None else backed

    def _in_use(self) -> int:
        return self.used - self.slack - self._range.cache.held

    def _soft_limit(self, size: int) -> int | None:
        """The bytes that the soft limit allows to be backed once `size` more are in use."""
        soft = self.options.soft_limit
        if isinstance(soft, Fraction):
            return max(int(soft * max(self.peak_in_use, self._in_use() + size)), LEAST_SOFT)
        return soft

    def _over(self, missing: int, size: int) -> bool:
        """True where backing `missing` bytes more, if any, breaks a limit."""
        limits = (self._soft_limit(size), self.options.limit)
        return missing > 0 and any(x is not None and self.reserved + missing > x for x in limits)

    def _make_room(self, missing: int, size: int, covered: range) -> bool:
        """Give free pages back so that `missing` bytes can be committed for a block of `size` bytes, which
        covers the pages `covered`; True where that keeps the hard limit.
        """
        if not missing:
            return True
        soft, hard = self._soft_limit(size), self.options.limit
        if soft is not None:
            self._range.decommit_fitting(self.reserved + missing - soft)
            most = soft + max(soft // EXCESS, LEAST_SOFT)
            excess = self.reserved + missing - most
            if excess > 0 and self.pages.size < self.options.page:
                given = self._range.decommit_fragments(excess + AHEAD, covered)
                left = (most if hard is None else min(most, hard)) - self.reserved - missing
                self._range.commit_ahead(min(given, left, AHEAD))
        if hard is None:
            return True
        self._range.decommit_fitting(self.reserved + missing - hard)
        return self.reserved + missing <= hard

    def _tightest(self, size: int, align: int) -> tuple[int, int]:
        """The offset at which a block costs the fewest pages once all free ones are given back, and the pages
        in which it is to be backed: the system's, where the pool's are too coarse.

        It lies at the lower or the upper end of an interval: its inner pages are all missing.  Raises
        OutOfMemoryError.
        """
        self._free_slack()
        chosen = self._range
        chosen.decommit_free(chosen.capacity)
        missing, offset = chosen.tightest(size, align, self.options.page)
        hard, grain = self.options.limit, self.options.page
        if hard is None or self.reserved + missing <= hard:
            return offset, grain
        if chosen.pages.size < grain:
            grain = chosen.pages.size
            chosen.decommit_units()
            missing, offset = chosen.tightest(size, align, grain)
        if self.reserved + missing > hard:
            where = {"limit": hard, "in_use": self.used, "reserved": self.reserved}
            piece = chosen.largest_backed()
            raise OutOfMemoryError(does_not_fit(size=size, missing=missing, piece=piece, **where))
        return offset, grain

    def _release(self, blocks: Iterable[Block]) -> None:
        for address, size in blocks:
            self._range.free_list.put(address, size)
            self.used -= size


def _block_size(nbytes: int) -> int:
    return max(round_up(nbytes, ALIGNMENT), ALIGNMENT)
