"""The page table of an address range: the pages that hold memory.

Reserved, in this project, is exactly what is counted here: the bytes of the pages that are backed.  Address
space alone costs nothing.  Backing pages (commit) and giving them back (decommit) costs time, so the
operations and their bytes are counted as well.
"""

from __future__ import annotations


class PageTable:
    """The pages of one range, in units of `size` bytes, the system's page; none is backed at first.

    A `grain`, some multiple of a unit, rounds what is backed at both ends.  `commits` and `decommits` count
    operations, `committed` and `decommitted` their bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._backed = bytearray()  # one byte a unit, 1 where it is backed; short of the end: not backed
        self.commits = self.committed = self.decommits = self.decommitted = 0

    @property
    def reserved(self) -> int:
        return self.committed - self.decommitted

    def missing(self, offset: int, nbytes: int, grain: int) -> int:
        """Bytes to commit before [offset, offset + nbytes) can be used."""
        first, last = self._span(offset, nbytes, grain)
        return (last - first - self._backed.count(1, first, last)) * self.size

    def commit(self, offset: int, nbytes: int, grain: int) -> None:
        """Back every page of `grain` bytes that [offset, offset + nbytes) touches."""
        missing = self.missing(offset, nbytes, grain)
        if not missing:
            return
        first, last = self._span(offset, nbytes, grain)
        if last > len(self._backed):
            self._backed.extend(bytes(last - len(self._backed)))
        self._backed[first:last] = b"\1" * (last - first)
        self.commits += 1
        self.committed += missing

    @property
    def end(self) -> int:
        """Nothing from this byte on is backed."""
        return len(self._backed) * self.size

    def highest_backed(self, start: int, end: int) -> int | None:
        """The number of the highest unit in [start, end) that is backed; None: there is none."""
        index = self._backed.rfind(1, start // self.size, end // self.size)
        return None if index < 0 else index

    def decommit(self, start: int, end: int) -> int:
        """Give back what is backed of [start, end), which are whole units; return the bytes."""
        first, last = start // self.size, min(end // self.size, len(self._backed))
        given = self._backed.count(1, first, last) if first < last else 0
        if given:
            self._backed[first:last] = bytes(last - first)
            self.decommits += 1
            self.decommitted += given * self.size
        return given * self.size

    def _span(self, offset: int, nbytes: int, grain: int) -> tuple[int, int]:
        return offset // grain * grain // self.size, -(-(offset + nbytes) // grain) * grain // self.size
