"""Which buffers are live at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from symalloc.planner.memory_plan import Buffer, LiveRange


def overlap(left: LiveRange, right: LiveRange) -> bool:
    """Whether two live ranges share a position."""
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i][0] < right[j][1] and right[j][0] < left[i][1]:
            return True
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return False


def interference(buffers: Sequence[Buffer]) -> dict[int, frozenset[int]]:
    """For each buffer id, the ids of those live at some moment together with it (itself left out).

    A sweep over interval begins: work grows with the number of overlapping intervals, not with all pairs.
    """
    neighbours: dict[int, set[int]] = {b.id: set() for b in buffers}
    events = sorted((begin, end, b.id) for b in buffers for begin, end in b.live if begin < end)
    active: list[tuple[int, int]] = []
    for begin, end, current in events:
        active = [(until, other) for until, other in active if until > begin]
        for _, other in active:
            if other != current:
                neighbours[current].add(other)
                neighbours[other].add(current)
        active.append((end, current))
    return {id_: frozenset(others) for id_, others in neighbours.items()}
