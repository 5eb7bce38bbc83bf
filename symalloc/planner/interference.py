"""The buffers that are live at the same time, and the floor: the largest sum of bytes that are live at one
position.  No plan of this order can do with less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

from symalloc.analysis.liveness import Intervals
from symalloc.planner.memory_plan import Buffer
from symalloc.size.expr import ZERO, Expr

Changes: TypeAlias = Sequence[tuple[Sequence[int], Sequence[int]]]
"""What begins and what ends, at one position after the other."""


def changes_of(lives: Sequence[Intervals]) -> Changes:
    """Return what begins and what ends to live, by index, at each position where something does."""
    found: dict[int, tuple[list[int], list[int]]] = {}
    for index, live in enumerate(lives):
        for begin, end in live:
            if begin < end:
                found.setdefault(begin, ([], []))[0].append(index)
                found.setdefault(end, ([], []))[1].append(index)
    return [found[position] for position in sorted(found)]


def live_sets(lives: Sequence[Intervals]) -> Iterator[set[int]]:
    """Yield the indices of the ranges that are live, in the order of time, wherever something has begun and
    something ends next: every maximal set is among them.
    """
    active: set[int] = set()
    grown = False
    for begins, ends in changes_of(lives):
        if ends and grown:
            yield active
        active = active.difference(ends).union(begins)
        grown = bool(begins) or (grown and not ends)


def interference(buffers: Sequence[Buffer]) -> tuple[tuple[int, ...], ...]:
    """Return for each buffer the indices of those that are live at some position with it, in order."""
    found: list[list[int]] = [[] for _ in buffers]
    active: set[int] = set()
    for begins, ends in changes_of([b.live for b in buffers]):
        active.difference_update(ends)
        for index in begins:
            found[index] += active
            for other in active:
                found[other].append(index)
            active.add(index)
    return tuple([tuple(sorted(set(others))) for others in found])


def pairs_live_together(lives: Sequence[Intervals]) -> int:
    """Return how many pairs of ranges are live together, those counted again that meet more than once."""
    pairs = active = 0
    for begins, ends in changes_of(lives):
        active -= len(ends)
        pairs += sum(range(active, active + len(begins)))
        active += len(begins)
    return pairs


def most_at_once(changes: Changes) -> int:
    """Return how many are live together at most."""
    return max(accumulate(len(begins) - len(ends) for begins, ends in changes), default=0)


def live_sums(buffers: Sequence[Buffer]) -> tuple[Expr, ...]:
    """Return the sums of sizes over the sets of buffers that are live together.

    A set within another, or with no more buffers of any size, is left out: sizes are >= 0.
    """
    distinct: dict[Expr, int] = {}
    kinds = [distinct.setdefault(b.size, len(distinct)) for b in buffers]
    sets = live_sets([b.live for b in buffers])
    counts = {frozenset(Counter(kinds[index] for index in together).items()) for together in sets}
    sizes = tuple(distinct)
    sums = {sum((sizes[kind] * n for kind, n in c.items()), ZERO) for c in _maximal(map(dict, counts))}
    return tuple(sorted(sums, key=lambda e: e.key))


def _maximal(found: Iterable[dict[int, int]]) -> list[dict[int, int]]:
    """Drop the counts that another reaches in every kind."""
    kept: list[dict[int, int]] = []
    holding: dict[int, list[dict[int, int]]] = {}  # those of `kept` that have some of a kind
    for counts in sorted(found, key=lambda c: -sum(c.values())):
        others = min((holding.get(kind, []) for kind in counts), key=len)
        if not any(all(other.get(kind, 0) >= n for kind, n in counts.items()) for other in others):
            kept.append(counts)
            for kind in counts:
                holding.setdefault(kind, []).append(counts)
    return kept
