"""Offsets of a stacking: off_i = max over those below of off_j + size_j, simplified by proved dominance.

An offset is kept as its alternatives (their maximum is meant), so that sums distribute and most maxima
vanish before an expression is built.  Layers repeat: every distinct question is asked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from symalloc.planner.layout.dominance import Dominance
from symalloc.planner.layout.pruning import prune
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.stacking import Stacking
from symalloc.size.expr import Expr

Alternatives: TypeAlias = tuple[Expr, ...]


def offsets(buffers: Sequence[Buffer], stacking: Stacking, dominance: Dominance) -> list[Alternatives]:
    """Return for each buffer the alternatives whose maximum is its offset, a multiple of its alignment."""
    found: list[Alternatives] = [()] * len(buffers)
    known: dict[tuple[frozenset[tuple[Alternatives, Expr]], int], Alternatives] = {}
    for current in stacking.order:
        step = buffers[current].alignment
        under = frozenset((found[j], buffers[j].size) for j in stacking.below[current])
        placed = known.get((under, step))
        if placed is None:
            ends = _ends((found[j], buffers[j].size) for j in stacking.below[current])
            pruned = prune((dominance.align(end, step) for end in ends), dominance)
            placed = known[under, step] = tuple(dominance.align(e, step) for e in pruned)
        found[current] = placed
    return found


def arena_size(
    buffers: Sequence[Buffer], placed: Sequence[Alternatives], dominance: Dominance
) -> Alternatives:
    """Return the alternatives whose maximum is the height of the whole stacking in bytes."""
    sizes = (b.size for b in buffers)
    return prune(_ends(dict.fromkeys(zip(placed, sizes, strict=True))), dominance)


def _ends(placed: Iterable[tuple[Alternatives, Expr]]) -> Iterable[Expr]:
    """Return the alternatives of where buffers end, given those of where they start and their sizes."""
    return dict.fromkeys(alternative + size for starts, size in placed for alternative in starts)
