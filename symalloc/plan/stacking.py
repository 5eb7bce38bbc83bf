"""Stacking: for each pair of interfering buffers, who lies below whom.

A stacking taken from a packing at one binding is right for every binding: offsets that follow from it
keep each pair apart whatever the sizes; only the height of the arena varies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from symalloc.plan.model import Buffer

__all__ = ["Stacking", "stack", "stacking"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacking:
    """`order` lists buffer ids bottom first; `below[i]` holds the interfering ids that come before i in
    it.
    """

    order: tuple[int, ...]
    below: Mapping[int, frozenset[int]]


def stacking(order: Sequence[int], neighbours: Mapping[int, frozenset[int]]) -> Stacking:
    """The stacking in which of two neighbours the one that comes first in `order` lies below."""
    rank = {id_: position for position, id_ in enumerate(order)}
    below = {i: frozenset(j for j in neighbours[i] if rank[j] < rank[i]) for i in order}
    return Stacking(order=tuple(order), below=below)


def stack(
    buffers: Sequence[Buffer],
    neighbours: Mapping[int, frozenset[int]],
    binding: Mapping[str, int],
) -> Stacking:
    """The stacking of a greedy best-fit packing by size at `binding`: largest first, each into the
    tightest gap.

    Deterministic: ties go to the one that begins first, which is optimal where all sizes are equal, then
    to the lower id.
    """
    sizes = {b.id: b.size.evaluate(binding) for b in buffers}
    begins = {b.id: min((begin for begin, _ in b.live), default=0) for b in buffers}
    offsets: dict[int, int] = {}
    for current in sorted(sizes, key=lambda i: (-sizes[i], begins[i], i)):
        taken = sorted((offsets[j], offsets[j] + sizes[j]) for j in neighbours[current] if j in offsets)
        offsets[current] = _best_gap(taken, sizes[current])
    return stacking(sorted(sizes, key=lambda i: (offsets[i], offsets[i] + sizes[i], i)), neighbours)


def _best_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap between the sorted intervals `taken` that holds `size` bytes, else
    their top.
    """
    best: tuple[int, int] | None = None
    top = 0
    for begin, end in taken:
        gap = begin - top
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, top)
        top = max(top, end)
    return top if best is None else best[1]
