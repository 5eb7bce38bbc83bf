"""Free blocks that a thread keeps of one range, so that most of its allocations take no lock.

Small blocks wait in bins for the next allocation of the same size.  Of large blocks, the memory freed last
serves first as long as it is large enough; blocks freed in any order that leaves no gap are one piece again.
A very large piece also serves blocks of a medium size that no bin has.
Where a range has many free intervals, and finding one takes long, blocks of a medium size wait elsewhere, and
serve blocks that are a little smaller: those have slack then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

Block = tuple[int, int]  # address, bytes

MEDIUM = 16 * 2**10  # bytes; smaller blocks are never parts of larger ones that are kept
NEAR = 8  # a block may have slack of this share of what was asked for
NEAR_LARGEST = 256 * 2**10  # bytes
NEAR_MOST = 255  # blocks
NEAR_ROOM = 8  # where it is full, this part is made room for at once
NEAR_SHARE = 64  # of what was in use, a thread may keep this part in its near-fit cache
CHOOSY = 16  # a piece may be larger than a block by this share of it


class SizeBins:
    """Free blocks by their exact size, the last freed first.

    A block larger than `largest` is not kept; neither are blocks of more than `capacity` bytes together.
    """

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
        self._blocks[nbytes].append(address)
        self.held += nbytes

    def flush(self) -> Iterator[Block]:
        for nbytes, blocks in self._blocks.items():
            yield from ((address, nbytes) for address in blocks)
        self._blocks.clear()
        self.held = 0


class NearFitCache:
    """Up to NEAR_MOST free blocks of together `most` bytes.

    The last take the place of those that have waited longest.
    """

    def __init__(self) -> None:
        self.most = self.held = 0  # bytes
        self._blocks: list[Block] = []  # the oldest first

    def take(self, least: int, most: int) -> Block | None:
        """Remove the smallest block of `least` to `most` bytes, of those of one size the last; None: there
        is none.
        """
        fits = [(size, -at) for at, (_, size) in enumerate(self._blocks) if least <= size <= most]
        return self._pop(-min(fits)[1]) if fits else None

    def put(self, address: int, nbytes: int) -> bool:
        """Hold a block; False where that would be too many blocks, or too many bytes."""
        if not self._room(nbytes):
            return False
        self._blocks.append((address, nbytes))
        self.held += nbytes
        return True

    def make_room(self, nbytes: int, most: int) -> Iterator[Block]:
        """Let it hold up to `most` bytes; where `nbytes` do not fit, remove blocks until they do, and a share
        of all beside.
        """
        self.most = most
        if self._room(nbytes):
            return
        count, held = NEAR_MOST - NEAR_MOST // NEAR_ROOM, most - most // NEAR_ROOM - nbytes
        while self._blocks and (len(self._blocks) >= count or self.held > held):
            yield self._pop(0)

    def flush(self) -> Iterator[Block]:
        while self._blocks:
            yield self._pop(-1)

    def _room(self, nbytes: int) -> bool:
        return len(self._blocks) < NEAR_MOST and self.held + nbytes <= self.most

    def _pop(self, index: int) -> Block:
        block = self._blocks.pop(index)
        self.held -= block[1]
        return block


class LargeBlockCache:
    """One piece of free memory from `start` on, of `held` bytes and at most `most`; at first none.

    One that is `choosy` serves only blocks that leave little of it.
    """

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
    """The bins, the large-block cache and the near-fit cache of one thread for one range."""

    def __init__(self, *, bin_largest: int, bin_capacity: int) -> None:
        self.bins = SizeBins(largest=bin_largest, capacity=bin_capacity)
        self.large = LargeBlockCache()
        self.near_fits = NearFitCache()
        self.large_capacity = 2 * bin_capacity

    @property
    def held(self) -> int:
        return self.bins.held + self.large.held + self.near_fits.held

    def take(self, nbytes: int, *, near: bool) -> Block | None:
        """Remove a block of `nbytes` bytes, or, with `near`, one that is larger by at most an eighth; None:
        there is none.
        """
        if nbytes <= self.bins.largest and (address := self.bins.take(nbytes)) is not None:
            return address, nbytes
        if MEDIUM <= nbytes <= NEAR_LARGEST:
            block = self.near_fits.take(nbytes, nbytes + nbytes // NEAR if near else nbytes)
            if block is not None:
                return block
        if nbytes <= self.bins.largest and not self._serves_medium(nbytes):
            return None
        address = self.large.take(nbytes)
        return None if address is None else (address, nbytes)

    def put(self, address: int, nbytes: int, *, peak: int, crowded: bool, near: bool) -> Iterator[Block]:
        """Keep a block; yield those that must go back to the range for it, perhaps the block itself.

        `peak` is the most that was in use at a time: a single block beyond the capacity may be kept in a
        piece of that size.  `crowded` says that the range has many free intervals, so that a place must be
        chosen with care, and `near` that blocks may have slack.
        """
        if near and MEDIUM <= nbytes <= NEAR_LARGEST:
            yield from self._put_near(address, nbytes, peak)
        elif nbytes <= self.bins.largest and not self._rejoins(address, nbytes):
            if not self.bins.room(nbytes):
                yield from self.bins.flush()
            self.bins.put(address, nbytes)
        elif not self.large.join(address, nbytes):
            yield from self.large.flush()
            self.large.allow(self._most(nbytes, peak), choosy=crowded)
            if not self.large.join(address, nbytes):
                yield address, nbytes

    def _serves_medium(self, nbytes: int) -> bool:
        """True where a block may come from the large piece, which would go if the range had to serve it."""
        return nbytes >= MEDIUM and self.large.held > self.large_capacity

    def _rejoins(self, address: int, nbytes: int) -> bool:
        """True where a block is large enough to come from the large piece, and ends where that begins."""
        large = self.large
        return nbytes >= MEDIUM and large.held > 0 and address + nbytes == large.start

    def _put_near(self, address: int, nbytes: int, peak: int) -> Iterator[Block]:
        if self.near_fits.put(address, nbytes):
            return
        if self.large_capacity:
            yield from self.near_fits.make_room(nbytes, max(self.large_capacity, peak // NEAR_SHARE))
        if not self.near_fits.put(address, nbytes):
            yield address, nbytes

    def _most(self, nbytes: int, peak: int) -> int:
        beyond = 0 < self.large_capacity < nbytes
        return max(self.large_capacity, peak) if beyond else self.large_capacity

    def let_go(self) -> Iterator[Block]:
        """Remove a large piece beyond the capacity: it goes when the thread needs another."""
        if self.large.held > self.large_capacity:
            yield from self.large.flush()

    def flush(self) -> Iterator[Block]:
        yield from self.bins.flush()
        yield from self.large.flush()
        yield from self.near_fits.flush()
