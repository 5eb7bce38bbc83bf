"""Offsets of a stacking: off_i = max over those below of off_j + size_j, simplified by proved dominance.

An offset is kept as its alternatives (their maximum is meant), so that sums distribute and most maxima
vanish before an expression is built.  Layers repeat: every distinct question is asked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from symalloc.planner.interference import unreached
from symalloc.planner.layout.dominance import Dominance
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.stacking import Stacking
from symalloc.size.choice import maximum
from symalloc.size.expr import ZERO, Expr

Alternatives: TypeAlias = tuple[Expr, ...]

MOST_ALTERNATIVES = 8  # beyond it a maximum becomes one opaque expression: sums over it no longer distribute


def offsets(buffers: Sequence[Buffer], stacking: Stacking, dominance: Dominance) -> list[Alternatives]:
    """Return for each buffer the alternatives whose maximum is its offset, a multiple of its alignment."""
    found: list[Alternatives] = [()] * len(buffers)
    known: dict[tuple[frozenset[tuple[Alternatives, Expr]], int], Alternatives] = {}
    for current in stacking.order:
        step, below = buffers[current].alignment, stacking.below[current]
        under = frozenset((found[j], buffers[j].size) for j in below)
        placed = known.get((under, step))
        if placed is None:
            last = _uppermost(below, stacking.below)
            ends = _ends((found[j], buffers[j].size) for j in last)
            placed = prune((dominance.align(end, step) for end in ends), dominance)
            known[under, step] = placed
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


def prune(candidates: Iterable[Expr], dominance: Dominance) -> Alternatives:
    """The candidates that no other is proved to reach: at least one is left; zero where there are none."""
    ordered = sorted(set(candidates), key=lambda e: (-len(e.terms), e.key))
    kept = unreached(ordered, dominance.reaches)
    if len(kept) > MOST_ALTERNATIVES:
        return (maximum(*kept),)
    return tuple(sorted(kept, key=lambda e: e.key)) or (ZERO,)


def _uppermost(below: frozenset[int], all_below: Sequence[frozenset[int]]) -> list[int]:
    """Those of `below` under which no other of them lies above: the rest cannot decide the offset."""
    covered = frozenset().union(*(all_below[j] & below for j in below))
    return sorted(below - covered)
