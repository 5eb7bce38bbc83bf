"""Bytes, simulated: regions, tensors placed on them, and who wrote each byte last."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from math import prod

from tests.mutation.truth import Truth

__all__ = ["Region", "Stamp", "Storage", "Tensor"]


@dataclass(eq=False, slots=True)
class Stamp:
    """Whose content it is: one per tensor allocated or viewed; `parent` is what it is a view of, `truth` what
    it says as a condition.
    """

    parent: Stamp | None = None
    written: bool = False
    truth: Truth = field(default_factory=Truth)

    def related(self, other: Stamp) -> bool:
        """Whether one is the other or a view of it, over any number of steps."""
        return self in other.line() or other in self.line()

    def line(self) -> list[Stamp]:
        """This stamp and all it is a view of."""
        out, here = [], self
        while here is not None:
            out.append(here)
            here = here.parent
        return out

    def ever_written(self) -> bool:
        """Whether anything was written through it or what it views."""
        return any(stamp.written for stamp in self.line())


@dataclass(eq=False, slots=True)
class Region:
    """A stretch of memory of `size` bytes: who wrote what, as disjoint sorted pieces (begin, end, stamp)."""

    size: int
    pieces: list[tuple[int, int, Stamp]] = field(default_factory=list)

    def write(self, begin: int, end: int, stamp: Stamp) -> None:
        """The bytes [begin, end) now hold what `stamp` stands for."""
        stamp.written = True
        if begin >= end:
            return
        kept = [piece for old in self.pieces for piece in _outside(old, begin, end)]
        kept.insert(bisect_left([k[0] for k in kept], begin), (begin, end, stamp))
        self.pieces = kept

    def strangers(self, begin: int, end: int, stamp: Stamp) -> bool:
        """Whether a byte of [begin, end) was last written by somebody unrelated to `stamp`."""
        empty = begin >= end
        return not empty and any(b < end and begin < e and not stamp.related(s) for b, e, s in self.pieces)

    def holes(self, begin: int, end: int) -> bool:
        """Whether a byte of [begin, end) was never written."""
        at = begin
        for b, e, _ in self.pieces:
            if b > at:
                break
            at = max(at, e)
        return at < end


def _outside(piece: tuple[int, int, Stamp], begin: int, end: int) -> list[tuple[int, int, Stamp]]:
    b, e, stamp = piece
    parts = [(b, min(e, begin), stamp), (max(b, end), e, stamp)]
    return [part for part in parts if part[0] < part[1]]


@dataclass(eq=False, slots=True)
class Storage:
    """What alloc_storage hands out."""

    region: Region


@dataclass(eq=False, slots=True)
class Tensor:
    """A tensor: `offset` is its first byte in `region`, `shift` the byte offset that kernels see."""

    region: Region
    offset: int
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    stamp: Stamp
    shift: int = 0

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * self.itemsize

    @property
    def end(self) -> int:
        """The byte behind the last one."""
        return self.offset + self.nbytes

    def write(self) -> None:
        """All its bytes are written."""
        self.region.write(self.offset, self.end, self.stamp)
