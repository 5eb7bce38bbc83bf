"""The page table of an address range: the pages that hold memory.

Reserved, in this project, is exactly what is counted here: the bytes of the pages that are backed.  Address
space alone costs nothing.  Backing pages (commit) and giving them back (decommit) costs time, so the
operations and their bytes are counted as well.
"""

from __future__ import annotations


class PageTable:
    """The pages of `size` bytes of one range; none is backed at first.

    `commits` and `decommits` count operations, `committed` and `decommitted` their bytes.
    """

    __slots__ = ("_backed", "commits", "committed", "decommits", "decommitted", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._backed = bytearray()  # one byte a page, 1 where it is backed; short of the end: not backed
        self.commits = self.committed = self.decommits = self.decommitted = 0

    @property
    def reserved(self) -> int:
        """Bytes backed now."""
        return self.committed - self.decommitted

    def missing(self, offset: int, nbytes: int) -> int:
        """Bytes to commit before [offset, offset + nbytes) can be used."""
        first, last = offset // self.size, -(-(offset + nbytes) // self.size)
        return (last - first - self._backed.count(1, first, last)) * self.size

    def backed(self) -> bytes:
        """One byte a page from the first on, 1 where it is backed; pages beyond are not."""
        return bytes(self._backed)

    def commit(self, offset: int, nbytes: int) -> None:
        """Back every page that [offset, offset + nbytes) touches."""
        missing = self.missing(offset, nbytes)
        if not missing:
            return
        first, last = offset // self.size, -(-(offset + nbytes) // self.size)
        if last > len(self._backed):
            self._backed.extend(bytes(last - len(self._backed)))
        self._backed[first:last] = b"\1" * (last - first)
        self.commits += 1
        self.committed += missing

    def decommit(self, start: int, end: int, nbytes: int) -> int:
        """Give back pages that lie wholly in [start, end), the highest first, until `nbytes` bytes or more
        are given back or none is left; return the bytes given back.
        """
        first, last = -(-start // self.size), min(end // self.size, len(self._backed))
        wanted = min(-(-nbytes // self.size), self._backed.count(1, first, last))
        for _ in range(wanted):
            last = self._backed.rindex(1, first, last)
            self._backed[last] = 0
        if wanted > 0:
            self.decommits += 1
            self.decommitted += wanted * self.size
        return max(wanted, 0) * self.size
