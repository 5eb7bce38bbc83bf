"""Counting what pools do within a part of a program, by tag.

with symalloc.pool.statistics() as counted:
    step()
print(counted.peak_live, counted.tags["main.attention float32[n, 64]"].peak)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from symalloc.pool.registry import living_pools

if TYPE_CHECKING:
    from symalloc.pool.observed import Observed

__all__ = ["Counted", "TagCount", "Tally", "read_tally", "statistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TagCount:
    """Blocks and bytes under one tag; sizes are what was asked for.

    `allocated` and `freed` are bytes; `left` are those allocated within and not freed, `peak` the most of
    them at a time.  Frees of blocks from before count, under the tag that is known of them.
    """

    allocs: int = 0
    allocated: int = 0
    frees: int = 0
    freed: int = 0
    left: int = 0
    peak: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What was counted; sizes in bytes.

    `live` is what is live at the end, from before too, and `peak_live` the most at a time; `peak_used` and
    `peak_reserved` are as in `Statistics`.  Of several pools they are sums: an upper bound of the peaks.
    `tags` has "" for blocks without a tag.
    """

    live: int
    peak_live: int
    peak_used: int
    peak_reserved: int
    tags: Mapping[str, TagCount]

    @property
    def total(self) -> TagCount:
        """The sum over all tags; its `peak` is the sum of theirs, an upper bound."""
        return _sum(self.tags.values())


class Counted:
    """What is counted; while it goes on, what was so far."""

    __slots__ = ("_done", "_open")

    def __init__(self, pools: tuple[Observed, ...]) -> None:
        self._open = [(pool, pool.open_tally()) for pool in pools]
        self._done: Tally | None = None

    def tally(self) -> Tally:
        """All figures at one moment: now, or the end."""
        return self._done or _added([pool.read_tally(number) for pool, number in self._open])

    def close(self) -> None:
        """Counts no more."""
        self._done = self.tally()
        for pool, number in self._open:
            pool.close_tally(number)
        self._open = []

    @property
    def tags(self) -> Mapping[str, TagCount]:
        """Figures by tag, "" for blocks without one."""
        return self.tally().tags

    @property
    def total(self) -> TagCount:
        """The sum over all tags."""
        return self.tally().total

    @property
    def peak_live(self) -> int:
        """The most bytes live at a time."""
        return self.tally().peak_live

    @property
    def peak_used(self) -> int:
        """The most bytes in use at a time, rounded up."""
        return self.tally().peak_used

    @property
    def peak_reserved(self) -> int:
        """The most bytes backed at a time."""
        return self.tally().peak_reserved


@contextmanager
def statistics(*pools: Observed) -> Iterator[Counted]:
    """Counts what `pools` do, by any thread, until the end of the block; without any, all pools there are.

    Blocks may nest and overlap.  Each allocation and free costs a lock meanwhile.
    """
    counted = Counted(pools or living_pools())
    try:
        yield counted
    finally:
        counted.close()


def read_tally(answer: Any) -> Tally:
    """From what the native core answers: four figures, then a tag and six figures for each tag."""
    live, peak_live, peak_used, peak_reserved, *rest = answer
    names = [f.name for f in fields(TagCount)]
    step = 1 + len(names)
    return Tally(
        live=int(live),
        peak_live=int(peak_live),
        peak_used=int(peak_used),
        peak_reserved=int(peak_reserved),
        tags={
            str(rest[i]): TagCount(**dict(zip(names, map(int, rest[i + 1 : i + step]), strict=True)))
            for i in range(0, len(rest), step)
        },
    )


def _added(tallies: list[Tally]) -> Tally:
    names = {tag for tally in tallies for tag in tally.tags}
    tags = {tag: _sum(t.tags[tag] for t in tallies if tag in t.tags) for tag in names}
    return Tally(
        live=sum(t.live for t in tallies),
        peak_live=sum(t.peak_live for t in tallies),
        peak_used=sum(t.peak_used for t in tallies),
        peak_reserved=sum(t.peak_reserved for t in tallies),
        tags=dict(sorted(tags.items(), key=lambda item: (-item[1].peak, item[0]))),
    )


def _sum(each: Iterable[TagCount]) -> TagCount:
    counts = list(each)
    return TagCount(**{f.name: sum(getattr(c, f.name) for c in counts) for f in fields(TagCount)})
