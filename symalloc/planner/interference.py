"""The buffers that are live at the same time.  They go by their index in the sequence that is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from symalloc.analysis.live_ranges import Intervals
from symalloc.planner.memory_plan import Buffer


def live_sets(ranges: Iterable[Intervals]) -> Iterator[list[int]]:
    """Yield the indices that are live, in the order of time, once for each position where an interval begins.

    The live set only shrinks until the next interval begins, so every maximal set is among them.
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
    """Return for each buffer the indices of those that are live at some position together with it."""
    neighbours: list[set[int]] = [set() for _ in buffers]
    events = sorted((begin, end, i) for i, b in enumerate(buffers) for begin, end in b.live if begin < end)
    active: list[tuple[int, int]] = []
    for begin, end, current in events:
        active = [(until, other) for until, other in active if until > begin]
        for _, other in active:
            if other != current:
                neighbours[current].add(other)
                neighbours[other].add(current)
        active.append((end, current))
    # their order steers the local search: another one would give other plans, as good
    return tuple(tuple(frozenset(others)) for others in neighbours)
