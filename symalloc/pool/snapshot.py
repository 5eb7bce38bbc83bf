"""Where everything lies in a native pool, at one moment."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from symalloc.pool.counters import Statistics

__all__ = ["KnownBlock", "RangeLayout", "Snapshot", "read_snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBlock:
    """A live block that has a handle or a tag; `pointer` is its machine address."""

    tag: str
    pointer: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeLayout:
    """One address range: which of it is free and which is backed, [start, end) in bytes, lowest first."""

    holes: tuple[tuple[int, int], ...]
    backed: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A pool at one moment.  Other threads may have moved on between the parts."""

    statistics: Statistics
    ranges: tuple[RangeLayout, ...]
    blocks: tuple[KnownBlock, ...]


class _Counted(Protocol):
    def statistics(self) -> Statistics: ...


def read_snapshot(layout: bytes, holders: Sequence[object], pool: _Counted) -> Snapshot:
    """From what the native core says of `pool`."""
    flat = list(holders)
    return Snapshot(
        statistics=pool.statistics(),
        ranges=tuple(_ranges(array("q", bytes(layout)))),
        blocks=tuple(
            KnownBlock(tag=str(tag), pointer=int(pointer), nbytes=int(nbytes))  # type: ignore[call-overload]
            for tag, pointer, nbytes in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        ),
    )


def _ranges(numbers: array[int]) -> Iterator[RangeLayout]:
    at = 0
    while at < len(numbers):
        holes, runs = numbers[at : at + 2]
        middle, end = at + 2 + 2 * holes, at + 2 + 2 * holes + 2 * runs
        yield RangeLayout(
            holes=tuple(sorted(_pairs(numbers[at + 2 : middle]))), backed=tuple(_pairs(numbers[middle:end]))
        )
        at = end


def _pairs(numbers: array[int]) -> Iterator[tuple[int, int]]:
    return zip(numbers[::2], numbers[1::2], strict=True)
