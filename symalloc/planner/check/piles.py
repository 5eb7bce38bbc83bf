"""Pairs of buffers from which it follows that all are apart: those that lie directly on each other.

At every position the buffers that are live are put in the order in which they lie at a few bindings.  Where
each ends at the start of the next one or before, and no size is negative, each ends before all that follow.
So there are a few pairs for each buffer, whatever is live together.  Another order at another binding is
possible: then this proves nothing, and all pairs are to be asked about.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence

from symalloc.planner.memory_plan import Placement
from symalloc.size.expr import Expr

EXTENTS = (64, 5000, 1)


def directly_above(placements: Sequence[Placement]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of indices (lower, upper), each once, that are live at one position at which nothing
    lies between them.
    """
    if len(placements) == 1:
        return
    order = _from_below(placements)
    count = len(order)
    seen: set[tuple[int, int]] = set()
    pile: list[int] = []
    touched: list[int] = []
    now = -1
    for event in _events(placements, order):
        moment, number = event // count, event % count
        if moment >> 1 != now:
            if len(pile) == 2:
                seen.add((pile[0], pile[1]))
            elif len(pile) > 2:
                _note(pile, touched, seen)
            now, touched = moment >> 1, []
        if moment & 1:
            insort(pile, number)
        else:
            del pile[bisect_left(pile, number)]
        touched.append(number)
    yield from ((order[low], order[high]) for low, high in sorted(seen))


def _events(placements: Sequence[Placement], order: Sequence[int]) -> list[int]:
    """The ends and the begins of live ranges, in order: twice the position, one more where something begins,
    times the number of placements, and the place in `order`.

    Numbers are sorted in a fraction of the time that tuples take.
    """
    count = len(order)
    lives = [placements[index].buffer.live for index in order]
    return sorted(
        event
        for number, live in enumerate(lives)
        for begin, end in live
        if begin < end
        for event in (2 * end * count + number, (2 * begin + 1) * count + number)
    )


def _note(pile: Sequence[int], touched: Iterable[int], seen: set[tuple[int, int]]) -> None:
    """Add to `seen` the neighbours in `pile` that one of `touched` is one of, or has been between."""
    for number in touched:
        here = bisect_left(pile, number)
        for upper in range(max(here, 1), min(here + 2, len(pile))):
            seen.add((pile[upper - 1], pile[upper]))


def _from_below(placements: Sequence[Placement]) -> list[int]:
    """The indices by where each starts and ends at a few bindings."""
    kinds: dict[tuple[int, int], Placement] = {}  # most of what is equal is one object
    index = [(id(p.offset), id(p.buffer.size)) for p in placements]
    for key, placement in zip(index, placements, strict=True):
        kinds.setdefault(key, placement)
    names = frozenset().union(*(p.offset.symbols | p.buffer.size.symbols for p in kinds.values()))
    bindings = [dict.fromkeys(names, extent) for extent in EXTENTS]
    ends = {key: tuple([_ends(placement, at) for at in bindings]) for key, placement in kinds.items()}
    places = {one: place for place, one in enumerate(sorted({*ends.values()}))}
    ranks = {key: places[one] for key, one in ends.items()}
    found = [ranks[key] for key in index]
    return sorted(range(len(placements)), key=found.__getitem__)


def _ends(placement: Placement, binding: Mapping[str, int]) -> tuple[int, int]:
    start = _value(placement.offset, binding)
    return start, start + _value(placement.buffer.size, binding)


def _value(expr: Expr, binding: Mapping[str, int]) -> int:
    """The value; 0 where a divisor is zero, for this only suggests an order."""
    try:
        return expr.evaluate(binding)
    except ZeroDivisionError:
        return 0
