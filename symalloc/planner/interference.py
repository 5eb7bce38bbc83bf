"""The buffers that are live at the same time, and the floor: the largest sum of bytes that are live at one
position.  No plan of this order can do with less.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from symalloc.analysis.liveness import Intervals
from symalloc.planner.memory_plan import Buffer
from symalloc.size.expr import ZERO, Expr

Changes: TypeAlias = Sequence[tuple[Sequence[int], Sequence[int]]]
"""What begins and what ends, at one position after the other."""


def live_sets(ranges: Iterable[Intervals]) -> Iterator[list[int]]:
    """Yield the indices of the ranges that are live, once for each position where an interval begins.

    Positions come in the order of time.  The live set only shrinks until the next interval begins, so every
    maximal set is among them.
    """
    begins: dict[int, list[tuple[int, int]]] = {}
    for index, live in enumerate(ranges):
        for begin, end in live:
            if begin < end:
                begins.setdefault(begin, []).append((end, index))
    active: list[tuple[int, int]] = []
    for position in sorted(begins):
        active = [one for one in active if one[0] > position] + begins[position]
        yield [index for _, index in active]


def interference(buffers: Sequence[Buffer]) -> tuple[tuple[int, ...], ...]:
    """Return for each buffer the indices of those that are live at some position with it, in order."""
    return tuple([tuple(sorted(others)) for others in neighbours(buffers)])


def neighbours(buffers: Sequence[Buffer]) -> list[set[int]]:
    """Return for each buffer the indices of those that are live at some position together with it."""
    found: list[set[int]] = [set() for _ in buffers]
    events = sorted((begin, end, i) for i, b in enumerate(buffers) for begin, end in b.live if begin < end)
    active: list[tuple[int, int]] = []
    for begin, end, current in events:
        active = [(until, other) for until, other in active if until > begin]
        for _, other in active:
            if other != current:
                found[current].add(other)
                found[other].add(current)
        active.append((end, current))
    return found


def pairs_live_together(lives: Iterable[Intervals]) -> int:
    """Return how many pairs of ranges are live together, those counted again that meet more than once."""
    events = sorted(
        (at, begins) for live in lives for one in live for begins, at in ((False, one[1]), (True, one[0]))
    )
    pairs = active = 0
    for _, begins in events:
        pairs += active if begins else 0
        active += 1 if begins else -1
    return pairs


def changes_of(lives: Sequence[Intervals]) -> Changes:
    """Return what begins and what ends to live, by index, at each position where something does."""
    found: dict[int, tuple[list[int], list[int]]] = {}
    for index, live in enumerate(lives):
        for begin, end in live:
            if begin < end:
                found.setdefault(begin, ([], []))[0].append(index)
                found.setdefault(end, ([], []))[1].append(index)
    return [found[position] for position in sorted(found)]


def most_at_once(changes: Changes) -> int:
    """Return how many are live together at most."""
    return max(accumulate(len(begins) - len(ends) for begins, ends in changes), default=0)


def resting_on(order: Sequence[int], changes: Changes) -> tuple[tuple[int, ...], ...]:
    """Return for each range those that it lies on directly where ranges are piled up in `order`, bottom
    first; `changes` are theirs.

    At some position both are live, and nothing that is comes between them in the order: what lies farther
    down is below one of them.  There are at most three for each interval, whatever is live together.
    """
    rank = [0] * len(order)
    for position, index in enumerate(order):
        rank[index] = position
    found: list[set[int]] = [set() for _ in order]
    active: list[int] = []
    for begins, ends in changes:
        changed = [rank[i] for i in ends]
        for one in changed:
            del active[bisect_left(active, one)]
        for i in begins:
            insort(active, rank[i])
            changed.append(rank[i])
        count = len(active)
        if count == 2:
            found[order[active[1]]].add(order[active[0]])
        elif count > 2:
            for one in changed:
                place = bisect_left(active, one)
                for upper in range(max(place, 1), min(place + 2, count)):
                    found[order[active[upper]]].add(order[active[upper - 1]])
    return tuple(tuple(sorted(below)) if below else () for below in found)


def live_sums(buffers: Sequence[Buffer]) -> tuple[Expr, ...]:
    """Return the sums of sizes over the sets of buffers that are live together.

    A set within another, or with no more buffers of any size, is left out: sizes are >= 0.
    """
    distinct: dict[Expr, int] = {}
    kinds = [distinct.setdefault(b.size, len(distinct)) for b in buffers]
    sizes = tuple(distinct)
    counts = _largest_counts(kinds, [b.live for b in buffers])
    sums = {sum((sizes[kind] * n for kind, n in c.items()), ZERO) for c in _maximal(counts)}
    return tuple(sorted(sums, key=lambda e: e.key))


def _largest_counts(kinds: Sequence[int], lives: Sequence[Intervals]) -> Iterator[dict[int, int]]:
    """Yield how many of each kind are live wherever one begins to be and one that was ends next."""
    events = events_of(kinds, lives)
    now: dict[int, int] = {}
    for place, (_, begins, kind) in enumerate(events):
        now[kind] = now.get(kind, 0) + (1 if begins else -1)
        if not now[kind]:
            del now[kind]
        if begins and (place + 1 == len(events) or not events[place + 1][1]):
            yield dict(now)


def events_of(kinds: Sequence[int], lives: Sequence[Intervals]) -> list[tuple[int, bool, int]]:
    """Return where ranges end and begin, in order, what ends first: (position, whether it begins, kind)."""
    return sorted(
        (position, begins, kind)
        for kind, live in zip(kinds, lives, strict=True)
        for begin, end in live
        if begin < end
        for begins, position in ((False, end), (True, begin))
    )


def floor_bytes(sums: Sequence[Expr], binding: Mapping[str, int]) -> int:
    """Return the largest of `sums` (from `live_sums`) under `binding`."""
    return max((s.evaluate(binding) for s in sums), default=0)


def _maximal(found: Iterable[dict[int, int]]) -> list[dict[int, int]]:
    """Drop the counts that another reaches in every kind, and repetitions."""
    unique = {frozenset(counts.items()): counts for counts in found}
    kept: list[dict[int, int]] = []
    holding: dict[int, list[dict[int, int]]] = {}  # those of `kept` that have some of a kind
    for counts in sorted(unique.values(), key=lambda c: -sum(c.values())):
        others = min((holding.get(kind, []) for kind in counts), key=len)
        if not any(all(other.get(kind, 0) >= n for kind, n in counts.items()) for other in others):
            kept.append(counts)
            for kind in counts:
                holding.setdefault(kind, []).append(counts)
    return kept
