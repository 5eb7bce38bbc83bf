"""One free piece of memory that a thread keeps for its next large blocks, in front of a range.

Memory that was freed last serves first, as long as it is large enough, and is one piece again when blocks are
freed in any order that leaves no gap.  A block that comes and goes takes no lock then.
"""

from __future__ import annotations

__all__ = ["Piece"]


class Piece:
    """Free memory from `start` on, of `nbytes` bytes and at most `most`; at first none."""

    __slots__ = ("most", "nbytes", "start")

    def __init__(self, *, most: int) -> None:
        self.most = most
        self.nbytes = 0
        self.start = 0

    def take(self, nbytes: int) -> int | None:
        """The address of a block of `nbytes`, the front of the piece; None: it is too small."""
        if nbytes > self.nbytes:
            return None
        address = self.start
        self.start += nbytes
        self.nbytes -= nbytes
        return address

    def join(self, address: int, nbytes: int) -> bool:
        """Makes a block a part of the piece; False where they do not touch, or would be too much together."""
        if self.nbytes + nbytes > self.most:
            return False
        if not self.nbytes or address + nbytes == self.start:
            self.start = address
        elif address != self.start + self.nbytes:
            return False
        self.nbytes += nbytes
        return True

    def flush(self) -> tuple[int, int] | None:
        """Lets the piece go: (address, nbytes), None: there is none."""
        gone = (self.start, self.nbytes) if self.nbytes else None
        self.nbytes = 0
        return gone
