"""The layout of a native pool at one moment: free intervals, backed pages, live blocks."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from symalloc.pool.core.pool_statistics import PoolStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBlock:
    """A live block that has a handle or a tag; `pointer` is its machine address."""

    tag: str
    pointer: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeLayout:
    """The free intervals and the runs of backed pages of one range, [start, end) in bytes, lowest first."""

    free: tuple[tuple[int, int], ...]
    backed: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """A pool at one moment.  Other threads may have moved on between the parts."""

    statistics: PoolStatistics
    ranges: tuple[RangeLayout, ...]
    blocks: tuple[LiveBlock, ...]


def live_blocks(holders: Sequence[str | int]) -> tuple[LiveBlock, ...]:
    """Decode the answer of the native function `holders`."""
    flat = list(holders)
    return tuple(
        LiveBlock(tag=str(tag), pointer=int(pointer), nbytes=int(nbytes))
        for tag, pointer, nbytes in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    )


def range_layouts(layout: bytes) -> Iterator[RangeLayout]:
    """Decode the answer of the native function `layout`."""
    numbers = array("q", bytes(layout))
    at = 0
    while at < len(numbers):
        intervals, runs = numbers[at : at + 2]
        middle, end = at + 2 + 2 * intervals, at + 2 + 2 * intervals + 2 * runs
        yield RangeLayout(
            free=tuple(sorted(_pairs(numbers[at + 2 : middle]))), backed=tuple(_pairs(numbers[middle:end]))
        )
        at = end


def _pairs(numbers: array[int]) -> Iterator[tuple[int, int]]:
    return zip(numbers[::2], numbers[1::2], strict=True)
