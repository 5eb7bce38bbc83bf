"""Small blocks kept for the next allocation of the same size, in front of a range.

Each thread has its own, so that most allocations of small blocks take no lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

__all__ = ["Bins"]


class Bins:
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
        """The address of a block of exactly `nbytes`, no longer held; None: there is none."""
        blocks = self._blocks.get(nbytes)
        if not blocks:
            return None
        self.held -= nbytes
        return blocks.pop()

    def room(self, nbytes: int) -> bool:
        """Whether a block of `nbytes` may be held besides those that are."""
        return self.held + nbytes <= self.capacity

    def put(self, address: int, nbytes: int) -> None:
        """Holds a block."""
        self._blocks[nbytes].append(address)
        self.held += nbytes

    def flush(self) -> Iterator[tuple[int, int]]:
        """Lets every block go: (address, nbytes)."""
        for nbytes, blocks in self._blocks.items():
            yield from ((address, nbytes) for address in blocks)
        self._blocks.clear()
        self.held = 0
