"""Free blocks that a thread keeps of one range, so that most of its allocations take no lock.

Small blocks wait in bins for the next allocation of the same size.  Of large blocks, the memory freed last
serves first as long as it is large enough; blocks freed in any order that leaves no gap are one piece again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

Block = tuple[int, int]  # address, bytes

CHOOSY = 16  # a piece may be larger than a block by this share of it


class SizeBins:
    """Free blocks by their exact size, the last freed first.

    A block larger than `largest` is not kept; neither are blocks of more than `capacity` bytes together.
    """

    __slots__ = ("_blocks", "capacity", "held", "largest")

    def __init__(self, *, largest: int, capacity: int) -> None:
        self.largest = min(largest, capacity)
        self.capacity = capacity
        self.held = 0  # bytes
        self._blocks: defaultdict[int, list[int]] = defaultdict(list)

    def take(self, nbytes: int) -> int | None:
        """Remove a block of exactly `nbytes` and return its address; None: there is none."""
        blocks = self._blocks.get(nbytes)
        if not blocks:
            return None
        self.held -= nbytes
        return blocks.pop()

    def room(self, nbytes: int) -> bool:
        """Report whether a block of `nbytes` may be held besides those that are."""
        return self.held + nbytes <= self.capacity

    def put(self, address: int, nbytes: int) -> None:
        """Hold a block."""
        self._blocks[nbytes].append(address)
        self.held += nbytes

    def flush(self) -> Iterator[Block]:
        """Remove every block."""
        for nbytes, blocks in self._blocks.items():
            yield from ((address, nbytes) for address in blocks)
        self._blocks.clear()
        self.held = 0


class LargeBlockCache:
    """One piece of free memory from `start` on, of `held` bytes and at most `most`; at first none.

    One that is `choosy` serves only blocks that leave little of it.
    """

    __slots__ = ("choosy", "held", "most", "start")

    def __init__(self) -> None:
        self.most = self.held = self.start = 0
        self.choosy = False

    def allow(self, most: int, *, choosy: bool) -> None:
        """Let it hold up to `most` bytes."""
        self.most, self.choosy = most, choosy

    def take(self, nbytes: int) -> int | None:
        """Remove the front of the piece and return its address; None: the piece is too small, or, where it is
        choosy, too large.
        """
        if nbytes > self.held or (self.choosy and self.held - nbytes > self.held // CHOOSY):
            return None
        address = self.start
        self.start += nbytes
        self.held -= nbytes
        return address

    def join(self, address: int, nbytes: int) -> bool:
        """Add a block to the piece; False where they do not touch, or would be too much together."""
        if self.held + nbytes > self.most:
            return False
        if not self.held or address + nbytes == self.start:
            self.start = address
        elif address != self.start + self.held:
            return False
        self.held += nbytes
        return True

    def flush(self) -> Iterator[Block]:
        """Remove the piece, where there is one; nothing is held until `allow`."""
        if self.held:
            yield self.start, self.held
        self.held = self.most = 0


class ThreadCache:
    """The bins and the large-block cache of one thread for one range."""

    __slots__ = ("bins", "large", "large_capacity")

    def __init__(self, *, bin_largest: int, bin_capacity: int) -> None:
        self.bins = SizeBins(largest=bin_largest, capacity=bin_capacity)
        self.large = LargeBlockCache()
        self.large_capacity = 2 * bin_capacity

    @property
    def held(self) -> int:
        """Bytes that are kept."""
        return self.bins.held + self.large.held

    def take(self, nbytes: int) -> int | None:
        """Remove a block and return its address; None: none of that size is kept."""
        return self.large.take(nbytes) if nbytes > self.bins.largest else self.bins.take(nbytes)

    def put(self, address: int, nbytes: int, *, peak: int, crowded: bool) -> Iterator[Block]:
        """Keep a block; yield those that must go back to the range for it, perhaps the block itself.

        `peak` is the most that was in use at a time: a single block beyond the capacity may be kept in a
        piece of that size.  `crowded` says that the range has many free intervals, so that a place must be
        chosen with care.
        """
        if nbytes <= self.bins.largest:
            if not self.bins.room(nbytes):
                yield from self.bins.flush()
            self.bins.put(address, nbytes)
        elif not self.large.join(address, nbytes):
            yield from self.large.flush()
            self.large.allow(self._most(nbytes, peak), choosy=crowded)
            if not self.large.join(address, nbytes):
                yield address, nbytes

    def _most(self, nbytes: int, peak: int) -> int:
        beyond = 0 < self.large_capacity < nbytes
        return max(self.large_capacity, peak) if beyond else self.large_capacity

    def let_go(self) -> Iterator[Block]:
        """Remove a large piece beyond the capacity: it goes when the thread needs another."""
        if self.large.held > self.large_capacity:
            yield from self.large.flush()

    def flush(self) -> Iterator[Block]:
        """Remove everything."""
        yield from self.bins.flush()
        yield from self.large.flush()
