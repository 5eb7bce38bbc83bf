"""Static packings by greedy placement: an order to place in, and the gap to take.

Greedy by size with best fit is that of Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net
Inference (2020); first fit by size, area or begin are the classics of dynamic storage allocation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from typing import TypeAlias

from symalloc.planner.exact.native_search import LARGEST
from symalloc.planner.exact.solve import lowest_place, place_in_order
from symalloc.planner.search.native_stacking import place_natively
from symalloc.planner.search.search_instance import SearchInstance

Key: TypeAlias = Callable[[SearchInstance, Sequence[int], int], float]


def _area(problem: SearchInstance, sizes: Sequence[int], i: int) -> float:
    return -sizes[i] * problem.durations[i]


def _lasting(problem: SearchInstance, sizes: Sequence[int], i: int) -> float:
    return -sizes[i] * sqrt(problem.durations[i])


def _conflict(problem: SearchInstance, sizes: Sequence[int], i: int) -> float:
    return -sizes[i] * sum(map(sizes.__getitem__, problem.neighbours[i]))


# name of the order -> what is placed first; ties go to the one that begins first, then to the lower index
ORDERS: dict[str, Key] = {
    "size": lambda _, sizes, i: -sizes[i],
    "area": _area,
    "lasting": _lasting,
    "conflict": _conflict,
    "span": lambda problem, _, i: -problem.durations[i],
    "begin": lambda problem, _, i: problem.begins[i],
}
# the best first: a search stops with the first that reaches the floor everywhere
HEURISTICS = (
    ("lasting", True),
    ("conflict", True),
    ("size", True),
    ("area", True),
    ("size", False),
    ("span", True),
    ("area", False),
    ("begin", True),
    ("conflict", False),
    ("begin", False),
)


def place(problem: SearchInstance, sizes: Sequence[int], order: str, *, best_fit: bool) -> list[int]:
    """The offset of each buffer of `problem` with these sizes, in bytes."""
    key = ORDERS[order]
    sequence = sorted(range(len(problem)), key=lambda i: (key(problem, sizes, i), problem.begins[i], i))
    if problem.graph is not None and sum(sizes) < LARGEST:
        return place_natively(problem.graph, sequence, sizes, best_fit=best_fit)
    choose = _best_place if best_fit else lowest_place
    return place_in_order(sequence, sizes, problem.neighbours, lambda i, taken: choose(sizes[i], taken))


def by_offset(offsets: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """All indices, bottom first: the stacking of a packing, as an order."""
    return sorted(range(len(offsets)), key=lambda i: (offsets[i], offsets[i] + sizes[i], i))


def _best_place(size: int, taken: Iterable[tuple[int, int]]) -> int:
    """The start of the smallest gap between the sorted intervals that holds `size` bytes, else their top."""
    least, found, top = None, 0, 0
    for begin, end in taken:
        if begin - top >= size and (least is None or begin - top < least):
            least, found = begin - top, top
        if end > top:
            top = end
    return top if least is None else found
