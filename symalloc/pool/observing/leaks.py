"""The holders of a pool's memory, by tag."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from symalloc.pool.core.pool_statistics import PoolStatistics

SHOWN = 5  # tags


class LeakWarning(RuntimeWarning):
    """A pool is closed while blocks of it are live; the text says whose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The live blocks under one tag, "" for those without one; `nbytes` is what was asked for."""

    tag: str
    blocks: int
    nbytes: int


def holdings(known: Iterable[tuple[str, int]], now: PoolStatistics) -> tuple[Holding, ...]:
    """The live blocks by tag, the most bytes first.  `known` are tag and bytes of single blocks; other blocks
    that `now` counts have no tag.
    """
    blocks: dict[str, int] = {}
    nbytes: dict[str, int] = {}
    for tag, size in known:
        blocks[tag] = blocks.get(tag, 0) + 1
        nbytes[tag] = nbytes.get(tag, 0) + size
    tagged = [Holding(tag=tag, blocks=count, nbytes=nbytes[tag]) for tag, count in blocks.items() if tag]
    rest = Holding(
        tag="",
        blocks=now.allocs - now.frees - sum(h.blocks for h in tagged),
        nbytes=now.live - sum(h.nbytes for h in tagged),
    )
    found = [*tagged, rest] if rest.blocks > 0 else tagged
    return tuple(sorted(found, key=lambda h: (-h.nbytes, h.tag)))


def leak_text(leaks: Sequence[Holding]) -> str:
    """One line: how much is live, and whose it is."""
    total, blocks = sum(h.nbytes for h in leaks), sum(h.blocks for h in leaks)
    shown = ", ".join(_share(h) for h in leaks[:SHOWN])
    more = f", {len(leaks) - SHOWN} tags more" if len(leaks) > SHOWN else ""
    return f"{_amount(total, blocks)} of the pool are not freed: {shown}{more}"


def _share(holding: Holding) -> str:
    name = f"`{holding.tag}`" if holding.tag else "without a tag"
    return f"{name} {_amount(holding.nbytes, holding.blocks)}"


def _amount(nbytes: int, blocks: int) -> str:
    return f"{nbytes} bytes in {blocks} block{'s' * (blocks != 1)}"
