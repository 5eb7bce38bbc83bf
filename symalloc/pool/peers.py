"""Models of other pools, reduced to the bytes they reserve: to compare with on the same traces.

None of them gives memory back while a program runs.  Addresses are distinct, and otherwise of no meaning.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass

from symalloc.pool.pool_options import round_up

MIB = 2**20


class ExactSize:
    """Freed blocks serve requests of just their size in units of 4096 bytes (TVM's pooled allocator)."""

    def __init__(self) -> None:
        self.reserved = 0
        self._waiting: defaultdict[int, list[int]] = defaultdict(list)
        self._sizes: dict[int, int] = {}

    def rounded(self, nbytes: int) -> int:
        """The bytes that a request takes."""
        return max(round_up(nbytes, 4096), 4096)

    def alloc(self, nbytes: int, *, escapes: bool = False) -> int:
        """The address of a block."""
        size = self.rounded(nbytes)
        waiting = self._waiting[size]
        if waiting:
            return waiting.pop()
        address = self.reserved
        self._sizes[address] = size
        self.reserved += size
        return address

    def free(self, address: int) -> None:
        """Keep the block for the next request of its size."""
        self._waiting[self._sizes[address]].append(address)


class PowerOfTwo(ExactSize):
    """The same with sizes rounded up to powers of two, from 64 bytes on."""

    def rounded(self, nbytes: int) -> int:
        """The bytes that a request takes."""
        return 1 << max(nbytes - 1, 63).bit_length()


@dataclass(slots=True, eq=False)
class _SegmentPart:
    """Part of a segment, free or not; `before` and `after` are its neighbours in it."""

    address: int
    size: int
    small: bool
    free: bool = False
    before: _SegmentPart | None = None
    after: _SegmentPart | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Best fit: the smallest first, then the lowest."""
        return self.size, self.address


class BestFit:
    """Best fit in segments, split and merged, as in PyTorch's CUDA caching allocator: blocks of at most
    1 MiB in segments of 2 MiB, others in segments of 20 MiB, from 10 MiB on in their own.
    """

    def __init__(self) -> None:
        self.reserved = 0
        self._free: dict[bool, list[_SegmentPart]] = {True: [], False: []}
        self._live: dict[int, _SegmentPart] = {}

    def alloc(self, nbytes: int, *, escapes: bool = False) -> int:
        """The address of a block."""
        size = max(round_up(nbytes, 512), 512)
        small = size <= MIB
        free = self._free[small]
        index = bisect_left(free, (size, 0), key=lambda piece: piece.order)
        piece = free.pop(index) if index < len(free) else self._segment(size, small)
        if piece.size - size > (511 if small else MIB):
            self._split(piece, size)
        piece.free = False
        self._live[piece.address] = piece
        return piece.address

    def free(self, address: int) -> None:
        """Merge the block with its free neighbours."""
        piece = self._live.pop(address)
        for other in (piece.before, piece.after):
            if other is not None and other.free:
                self._free[piece.small].remove(other)
                piece = _merged(*((other, piece) if other is piece.before else (piece, other)))
        piece.free = True
        insort(self._free[piece.small], piece, key=lambda piece: piece.order)

    def _segment(self, size: int, small: bool) -> _SegmentPart:
        nbytes = 2 * MIB if small else 20 * MIB if size < 10 * MIB else round_up(size, 2 * MIB)
        piece = _SegmentPart(self.reserved, nbytes, small)
        self.reserved += nbytes
        return piece

    def _split(self, piece: _SegmentPart, size: int) -> None:
        rest = _SegmentPart(piece.address + size, piece.size - size, piece.small, True, piece, piece.after)
        if piece.after is not None:
            piece.after.before = rest
        piece.after, piece.size = rest, size
        insort(self._free[piece.small], rest, key=lambda piece: piece.order)


def _merged(low: _SegmentPart, high: _SegmentPart) -> _SegmentPart:
    low.size += high.size
    low.after = high.after
    if high.after is not None:
        high.after.before = low
    return low


class Buddy:
    """A binary buddy system (Knowlton 1965) over one range that grows: blocks of powers of two, from 4096
    bytes on, the lowest first.
    """

    def __init__(self) -> None:
        self.reserved = 0
        self._free: defaultdict[int, list[int]] = defaultdict(list)  # by the exponent of the size, ascending
        self._exponents: dict[int, int] = {}
        self._top = 0  # from here on nothing has been handed out yet

    def alloc(self, nbytes: int, *, escapes: bool = False) -> int:
        """The address of a block, a multiple of its size."""
        exponent = max(nbytes - 1, 4095).bit_length()
        address = self._lowest(exponent)
        self._exponents[address] = exponent
        return address

    def free(self, address: int) -> None:
        """Merge the block with its buddy as long as that is free."""
        exponent = self._exponents.pop(address)
        while (buddy := address ^ (1 << exponent)) in self._free[exponent]:
            self._free[exponent].remove(buddy)
            address = min(address, buddy)
            exponent += 1
        insort(self._free[exponent], address)

    def _lowest(self, exponent: int) -> int:
        larger = [e for e in self._free if e >= exponent and self._free[e]]
        if not larger:
            return self._grown(exponent)
        chosen = min(larger)
        address = self._free[chosen].pop(0)
        for e in range(chosen - 1, exponent - 1, -1):
            insort(self._free[e], address + (1 << e))
        return address

    def _grown(self, exponent: int) -> int:
        """A block at the top; what is skipped for its alignment becomes free."""
        address = round_up(self._top, 1 << exponent)
        while self._top < address:
            step = self._top & -self._top
            insort(self._free[step.bit_length() - 1], self._top)
            self._top += step
        self._top += 1 << exponent
        self.reserved = self._top
        return address
