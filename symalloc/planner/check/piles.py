"""Pairs of buffers from which it follows that all are apart: those that lie directly on each other.

At every position the buffers that are live are put in the order in which they lie at a few bindings.  Where
each ends at the start of the next one or before, and no size is negative, each ends before all that follow.
So there are a few pairs for each buffer, whatever is live together.  Another order at another binding is
possible: then this proves nothing, and all pairs are to be asked about.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from symalloc.planner.memory_plan import Placement
from symalloc.size.expr import Expr

EXTENTS = (64, 5000, 1)


def directly_above(placements: Sequence[Placement]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of indices (lower, upper), each once, that are live at one position at which nothing
    lies between them.
    """
    order = _from_below(placements)
    events = sorted(
        (position, begins, number)
        for number, index in enumerate(order)
        for interval in placements[index].buffer.live
        for begins, position in enumerate(reversed(interval))
        if interval[0] < interval[1]
    )
    seen: set[tuple[int, int]] = set()
    pile: list[int] = []
    touched: list[int] = []
    for place, (position, begins, number) in enumerate(events):
        if begins:
            insort(pile, number)
        else:
            del pile[bisect_left(pile, number)]
        touched.append(number)
        if place + 1 == len(events) or events[place + 1][0] > position:
            seen.update(pair for one in touched for pair in _around(pile, one))
            touched = []
    yield from ((order[low], order[high]) for low, high in sorted(seen))


def _around(pile: Sequence[int], number: int) -> Iterator[tuple[int, int]]:
    """Yield the neighbours in `pile` that `number` is one of, or has been between."""
    here = bisect_left(pile, number)
    around = pile[max(here - 1, 0) : here + 2]
    yield from pairwise(around)


def _from_below(placements: Sequence[Placement]) -> list[int]:
    """The indices by where each starts and ends at a few bindings."""
    names = sorted(frozenset().union(*(p.offset.symbols | p.buffer.size.symbols for p in placements)))
    bindings = [dict.fromkeys(names, extent) for extent in EXTENTS]
    values: dict[Expr, list[int]] = {}
    for placement in placements:
        for expr in (placement.offset, placement.buffer.size):
            if expr not in values:
                values[expr] = [_value(expr, binding) for binding in bindings]
    keys = [
        [(start, start + size) for start, size in zip(values[p.offset], values[p.buffer.size], strict=True)]
        for p in placements
    ]
    return sorted(range(len(placements)), key=lambda i: (keys[i], i))


def _value(expr: Expr, binding: Mapping[str, int]) -> int:
    """The value; 0 where a divisor is zero, for this only suggests an order."""
    try:
        return expr.evaluate(binding)
    except ZeroDivisionError:
        return 0
