"""Packs static problems: within a capacity, or as low as can be found, saying whether that is proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from symalloc.plan.exact_greedy import greedy
from symalloc.plan.exact_problem import StaticBuffer, cliques, floor_of, height_of

__all__ = ["Exact", "StaticBuffer", "pack_exactly"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """The answer to a static packing problem.

    `offsets` are bytes by id, None where nothing was found within the capacity.  `height` is theirs, in
    bytes; without offsets it is a proved lower bound of the height.  `optimal`: without a capacity, no
    packing is lower; with one, the answer is final: it fits, or it is proved that none does.  `steps` counts
    the nodes of the search.
    """

    offsets: dict[int, int] | None
    height: int
    optimal: bool
    steps: int


def pack_exactly(
    buffers: Sequence[StaticBuffer],
    neighbours: Mapping[int, frozenset[int]],
    *,
    capacity: int | None,
    seconds: float,
    seed: int = 0,
) -> Exact:
    """Packs `buffers` within `capacity` bytes, or, where that is None, as low as it can.

    `neighbours` is what `interference(buffers)` says.  The search ends at the floor, or after `seconds`; the
    same `seed` gives the same answer unless the time runs out.
    """
    floor = floor_of(buffers, cliques(buffers))
    if capacity is not None and capacity < floor:
        return Exact(offsets=None, height=floor, optimal=True, steps=0)
    target = floor if capacity is None else capacity
    best: dict[int, int] | None = None
    steps = 0
    for offsets in greedy(buffers, neighbours):
        steps += len(buffers)
        if best is None or height_of(buffers, offsets) < height_of(buffers, best):
            best = offsets
        if height_of(buffers, best) <= target:
            return Exact(offsets=best, height=height_of(buffers, best), optimal=True, steps=steps)
    if capacity is not None or best is None:
        return Exact(offsets=None, height=floor, optimal=False, steps=steps)
    return Exact(offsets=best, height=height_of(buffers, best), optimal=False, steps=steps)
