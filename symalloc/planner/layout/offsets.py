"""Offsets of a stacking: off_i = max over those below of off_j + size_j, simplified by proved dominance.

An offset is kept as its alternatives (their maximum is meant), so that sums distribute and most maxima
vanish before an expression is built.  Layers repeat: every distinct question is asked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from math import gcd
from typing import TypeAlias

from symalloc.planner.layout.dominance import Dominance
from symalloc.planner.layout.pruning import prune
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.stacking import Stacking
from symalloc.size.choice import maximum
from symalloc.size.expr import Expr

LONG = 24  # terms of alternatives that become one maximum
MOST_NESTED = 24  # such maxima within each other
LONGEST = 12_000  # characters of one of them

Alternatives: TypeAlias = tuple[Expr, ...]


class FormulasTooLongError(Exception):
    """To tell which alternatives of offsets matter is more work than is worth it."""


def offsets(buffers: Sequence[Buffer], stacking: Stacking, dominance: Dominance) -> list[Alternatives]:
    """Return for each buffer the alternatives whose maximum is its offset, a multiple of its alignment.

    Long ones become one maximum, which what lies above does not repeat; where such maxima are nested too
    deep, or get too long, there are fewer alternatives instead.  Raises FormulasTooLongError once
    `dominance` or its budget is exhausted.
    """
    raised = dominance.raised
    found = _offsets(buffers, stacking, dominance, nested=MOST_NESTED)
    if found is None:
        dominance.raised = raised
        found = _offsets(buffers, stacking, dominance, nested=0)
    assert found is not None
    return found


def _offsets(
    buffers: Sequence[Buffer], stacking: Stacking, dominance: Dominance, *, nested: int
) -> list[Alternatives] | None:
    """Return the offsets with maxima that are at most so often `nested`; None where these do not do."""
    found: list[Alternatives] = [()] * len(buffers)
    known: dict[tuple[frozenset[tuple[Alternatives, Expr]], int], Alternatives] = {}
    depths: dict[Alternatives, int] = {}
    for current in stacking.order:
        step = buffers[current].alignment
        under = frozenset((found[j], buffers[j].size) for j in stacking.below[current])
        placed = known.get((under, step))
        if placed is None:
            ends = list(_ends((found[j], buffers[j].size) for j in stacking.below[current]))
            dominance.budget.spend(sum(len(end.terms) for end in ends))
            pruned = prune((dominance.align(end, step) for end in ends), dominance)
            placed = tuple(dominance.align(e, step) for e in pruned)
            depth = max((depths[starts] for starts, _ in under), default=0)
            if nested and _is_long(placed):
                placed, depth = _one_maximum(placed), depth + 1
                if depth > nested or len(placed[0].key) > LONGEST:
                    return None
            if dominance.exhausted or dominance.budget.exhausted:
                raise FormulasTooLongError
            known[under, step] = placed
            depths.setdefault(placed, depth)
        found[current] = placed
    return found


def _is_long(alternatives: Alternatives) -> bool:
    return len(alternatives) > 1 and sum(len(e.terms) for e in alternatives) > LONG


def _one_maximum(alternatives: Alternatives) -> Alternatives:
    """Return the maximum of `alternatives`; what divides them all stands before it, where it can be seen."""
    grain = gcd(*(c for e in alternatives for c in e.terms.values()))
    parts = (Expr({m: c // grain for m, c in e.terms.items()}) for e in alternatives)
    return (grain * maximum(*parts),)


def arena_size(
    buffers: Sequence[Buffer], stacking: Stacking, placed: Sequence[Alternatives], dominance: Dominance
) -> Alternatives:
    """Return the alternatives whose maximum is the height of the whole stacking in bytes.

    What lies under another buffer ends where that starts or before.
    """
    covered = frozenset(chain.from_iterable(stacking.below))
    tops = ((placed[i], buffer.size) for i, buffer in enumerate(buffers) if i not in covered)
    return prune(_ends(dict.fromkeys(tops)), dominance)


def _ends(placed: Iterable[tuple[Alternatives, Expr]]) -> Iterable[Expr]:
    """Return the alternatives of where buffers end, given those of where they start and their sizes."""
    return dict.fromkeys(alternative + size for starts, size in placed for alternative in starts)
