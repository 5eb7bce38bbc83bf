"""The pool's policy: the reference that the native core must agree with, address for address.

A pool owns address ranges that are far larger than what is used of them; only pages in use cost memory.

1. A block of up to 64 KiB comes from a bin of blocks of its exact size, where one waits; a larger one from
   the piece of memory that was freed last, where that is large enough (`piece.py`).
2. Else the lowest hole of the range that is large enough serves (`holes.py`).  Where all its pages are
   backed, that is all.
3. Where pages are missing, they are backed, as long as that keeps the pool within its limits.
4. Where it would not, the bins and the piece are given up: what they held may fill the gap.
5. Where that is not enough, as many free pages elsewhere are given back, the highest first: memory moves
   from holes that nobody fits in to where it is wanted.
6. Where that leaves the pool above the hard limit, all free pages are given back, and the place is sought
   that needs the fewest.  Where even that breaks the limit, the allocation fails, and nothing has changed
   but that free memory was given back.

The policy knows the past only.  What it may be told of a block is whether it outlives its call
(`escapes`); then such blocks and the others lie in ranges of their own (`apart`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from symalloc.pool.bins import Bins
from symalloc.pool.errors import BadFreeError, OutOfMemoryError, PoolUsageError
from symalloc.pool.holes import Holes, round_up
from symalloc.pool.pages import Pages
from symalloc.pool.piece import Piece
from symalloc.pool.shortage import Shortage, no_address_space

__all__ = ["Options", "PagedPool"]

ALIGNMENT = 64  # generated code assumes it; sizes are multiples of it too
KIB = 2**10
LEAST_SOFT = 2048 * KIB  # bytes; what little a small program saves is not worth the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a pool behaves; sizes in bytes.  Raises PoolUsageError for what makes no sense.

    `soft_limit` is a ratio to the largest sum of bytes in use so far (a Fraction), yet at least 2 MiB, or
    bytes (an int), or None: free pages are never given back by themselves.  `limit` bounds the bytes
    backed.  `page` is the unit that is backed and given back; `capacity` the address space of one range.
    Of each range a thread holds back `bin_capacity` bytes in bins and twice as many in one piece.
    """

    soft_limit: Fraction | int | None = Fraction(11, 10)
    limit: int | None = None
    page: int = 64 * KIB
    apart: bool = False
    bin_largest: int = 64 * KIB
    bin_capacity: int = 2048 * KIB
    capacity: int = 2**40

    def __post_init__(self) -> None:
        if self.page < 4 * KIB or self.page & (self.page - 1):
            raise PoolUsageError(f"the page size must be a power of two from 4096 bytes on, not {self.page}")
        if isinstance(self.soft_limit, Fraction) and self.soft_limit < 1:
            raise PoolUsageError(
                f"a soft limit of {float(self.soft_limit)} times what is in use cannot be held"
            )
        for name, value in (("soft limit", self.soft_limit), ("limit", self.limit)):
            if value is not None and value < 0:
                raise PoolUsageError(f"the {name} must not be negative")
        if self.capacity % self.page:
            raise PoolUsageError("the capacity of a range must be whole pages")


class _Range:
    """One address range: which of it is free, which of it is backed."""

    __slots__ = ("holes", "pages")

    def __init__(self, options: Options) -> None:
        self.holes = Holes(options.capacity)
        self.pages = Pages(options.page)

    def decommit_free(self, nbytes: int) -> int:
        """Gives back `nbytes` bytes of free pages, or all there are, the highest first; the bytes given."""
        given = 0
        for start, end in reversed(self.holes):
            if given >= nbytes:
                break
            given += self.pages.decommit(start, end, nbytes - given)
        return given

    def places(self, size: int, align: int) -> Iterator[int]:
        """The lowest and the highest multiple of `align` at which a block fits, in each hole."""
        for start, end in self.holes:
            for offset in (round_up(start, align), (end - size) // align * align):
                if start <= offset <= end - size:
                    yield offset

    def largest_hole(self) -> int:
        """Bytes of the largest hole."""
        return max((end - start for start, end in self.holes), default=0)

    def largest_backed(self) -> int:
        """Bytes of the largest free piece that lies in a backed page, all wholly free pages having been given
        back.
        """
        page, pieces = self.pages.size, [0]
        for start, end in self.holes:
            first, last = min(round_up(start, page), end), max(end // page * page, start)
            pieces += [b - a for a, b in ((start, first), (last, end)) if not self.pages.missing(a, b - a)]
        return max(pieces)


class PagedPool:
    """A pool for one thread that hands out addresses; nothing lies at them.

    An address is `range * capacity + offset`: range 0 for what stays in its call, 1 for what escapes.
    """

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self._ranges = [_Range(self.options) for _ in range(2 if self.options.apart else 1)]
        self._bins = [
            Bins(largest=self.options.bin_largest, capacity=self.options.bin_capacity) for _ in self._ranges
        ]
        self._pieces = [Piece(most=2 * self.options.bin_capacity) for _ in self._ranges]
        self._blocks: dict[int, int] = {}  # address -> bytes, of live blocks
        self.used = 0  # bytes that the ranges have handed out, to callers, bins or pieces
        self.peak_used = 0  # without what waited in those

    @property
    def reserved(self) -> int:
        """Bytes of the pages backed now."""
        return sum(r.pages.reserved for r in self._ranges)

    @property
    def pages(self) -> list[Pages]:
        """The pages of each range, with their counts."""
        return [r.pages for r in self._ranges]

    def alloc(self, nbytes: int, *, align: int = ALIGNMENT, escapes: bool = False) -> int:
        """The address of `nbytes` bytes, a multiple of `align` (a power of two); blocks of no bytes are
        distinct too.  Raises OutOfMemoryError.
        """
        size = max(round_up(nbytes, ALIGNMENT), ALIGNMENT)
        which = int(escapes and self.options.apart)
        address = self._take_kept(which, size) if align <= ALIGNMENT else None
        if address is None:
            address = which * self.options.capacity + self._place(which, size, max(align, ALIGNMENT))
        self._blocks[address] = size
        return address

    def free(self, address: int) -> None:
        """Frees the block at `address`; raises BadFreeError where none is live there."""
        size = self._blocks.pop(address, None)
        if size is None:
            raise BadFreeError(f"no live block starts at address {address}: {self._what_lies_at(address)}")
        which = address // self.options.capacity
        bins = self._bins[which]
        if size > bins.largest:
            self._keep(self._pieces[which], address, size)
            return
        if not bins.room(size):
            self._flush(bins)
        bins.put(address, size)

    def _take_kept(self, which: int, size: int) -> int | None:
        bins = self._bins[which]
        return self._pieces[which].take(size) if size > bins.largest else bins.take(size)

    def _keep(self, piece: Piece, address: int, size: int) -> None:
        """Keeps a large block, with the piece that is kept, or else in place of it."""
        if size > piece.most:
            self._release(address, size)
        elif not piece.join(address, size):
            self._flush_piece(piece)
            piece.join(address, size)

    def _what_lies_at(self, address: int) -> str:
        if not 0 <= address // self.options.capacity < len(self._ranges):
            return "it lies in no range of this pool"
        start = max((block for block in self._blocks if block <= address), default=None)
        if start is not None and address < start + self._blocks[start]:
            return f"it is byte {address - start} of the block at {start}"
        return "it was freed before, or never allocated"

    def trim(self) -> int:
        """Gives every free page back; the bytes given back."""
        self.flush()
        return sum(r.decommit_free(r.pages.reserved) for r in self._ranges)

    def flush(self) -> None:
        """Empties the bins, and gives the pieces up."""
        for bins, piece in zip(self._bins, self._pieces, strict=True):
            self._flush(bins)
            self._flush_piece(piece)

    def holes(self) -> list[list[tuple[int, int]]]:
        """The free parts [start, end) of each range, lowest first."""
        return [list(r.holes) for r in self._ranges]

    def _place(self, which: int, size: int, align: int) -> int:
        chosen = self._ranges[which]
        offset = chosen.holes.find(size, align)
        if offset is None or self._over(chosen.pages.missing(offset, size), size):
            self.flush()
            offset = chosen.holes.find(size, align)
        if offset is None:
            raise OutOfMemoryError(no_address_space(size, chosen.largest_hole(), self.options.capacity))
        chosen.holes.take(offset, size)
        if not self._make_room(which, chosen.pages.missing(offset, size), size):
            chosen.holes.put(offset, size)
            offset = self._tightest(chosen, size, align)
            chosen.holes.take(offset, size)
        chosen.pages.commit(offset, size)
        self.used += size
        self.peak_used = max(self.peak_used, self._in_use())
        return offset

    def _in_use(self) -> int:
        return self.used - sum(b.held for b in self._bins) - sum(p.nbytes for p in self._pieces)

    def _limits(self, size: int) -> list[int]:
        """What may be backed once a block of `size` more is in use: by the soft limit, by the hard limit."""
        soft = self.options.soft_limit
        if isinstance(soft, Fraction):
            soft = max(int(soft * max(self.peak_used, self._in_use() + size)), LEAST_SOFT)
        return [limit for limit in (soft, self.options.limit) if limit is not None]

    def _over(self, missing: int, size: int) -> bool:
        """Whether backing `missing` bytes more, if any, breaks a limit."""
        return missing > 0 and any(self.reserved + missing > limit for limit in self._limits(size))

    def _make_room(self, which: int, missing: int, size: int) -> bool:
        """Gives free pages back so that `missing` bytes can be committed for a block of `size` bytes; whether
        that keeps the hard limit.
        """
        if not missing:
            return True
        for limit in self._limits(size):
            self._give_back(which, self.reserved + missing - limit)
        hard = self.options.limit
        return hard is None or self.reserved + missing <= hard

    def _tightest(self, chosen: _Range, size: int, align: int) -> int:
        """Where a block costs the fewest pages once all free ones are given back: at the lower or the upper
        end of a hole, for pages in the middle of a hole are all missing.  Raises OutOfMemoryError.
        """
        for each in self._ranges:
            each.decommit_free(each.pages.reserved)
        ends = chosen.places(size, align)
        missing, offset = min((chosen.pages.missing(offset, size), offset) for offset in ends)
        hard = self.options.limit
        if hard is not None and self.reserved + missing > hard:
            raise OutOfMemoryError(
                Shortage(
                    size=size,
                    limit=hard,
                    in_use=self.used,
                    reserved=self.reserved,
                    missing=missing,
                    piece=chosen.largest_backed(),
                    page=self.options.page,
                ).text()
            )
        return offset

    def _give_back(self, which: int, nbytes: int) -> None:
        """Gives back `nbytes` bytes of free pages if there are as many, those of range `which` first."""
        for chosen in (self._ranges[which], *(r for r in self._ranges if r is not self._ranges[which])):
            if nbytes > 0:
                nbytes -= chosen.decommit_free(nbytes)

    def _flush(self, bins: Bins) -> None:
        for address, size in bins.flush():
            self._release(address, size)

    def _flush_piece(self, piece: Piece) -> None:
        gone = piece.flush()
        if gone is not None:
            self._release(*gone)

    def _release(self, address: int, size: int) -> None:
        self._ranges[address // self.options.capacity].holes.put(address % self.options.capacity, size)
        self.used -= size
