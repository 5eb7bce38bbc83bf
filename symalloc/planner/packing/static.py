"""Pack problems whose sizes are all known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import lcm

from symalloc.planner.exact.clique_instance import align_up
from symalloc.planner.exact.solve import pack_exactly
from symalloc.planner.floor import floor_bytes, live_sums
from symalloc.planner.interference import interference
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.stacking import Stacking
from symalloc.planner.search.stacking_search import SearchBudget, search
from symalloc.size.expr import round_up


def pack_static(buffers: Sequence[Buffer], budget: SearchBudget, capacity: int | None) -> list[int]:
    """Return offsets in bytes, in the order of `buffers`.

    Greedy packings are tried first, then the exact method, then local search; the first that reaches the
    floor or lies within `capacity` is the answer, otherwise the lowest.
    """
    target = floor_bytes(live_sums(buffers), {}) if capacity is None else capacity
    found: list[list[int]] = []
    for attempt in _attempts(buffers, budget, capacity):
        offsets = attempt()
        if offsets is not None:
            found.append(offsets)
        if found and height_of(buffers, found[-1]) <= target:
            break
    return min(found, key=lambda offsets: height_of(buffers, offsets))


def height_of(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """Return the end of the topmost buffer in bytes; 0 where there is none."""
    ends = (offset + b.size.evaluate({}) for b, offset in zip(buffers, offsets, strict=True))
    return max(ends, default=0)


def rounded(buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """Return the buffers at the sizes that they take up in a pile: what lies on one starts at a multiple."""
    step = lcm(*(b.alignment for b in buffers))
    return tuple(replace(b, size=round_up(b.size, step)) for b in buffers)


def _attempts(
    buffers: Sequence[Buffer], budget: SearchBudget, capacity: int | None
) -> Iterator[Callable[[], list[int] | None]]:
    def stacked(wanted: SearchBudget) -> list[int]:
        found = search(rounded(buffers), {}, replace(wanted, exact_seconds=0.0))
        return _pile(buffers, found.regimes[-1][1])

    def exact() -> list[int] | None:
        seconds = budget.exact_seconds if capacity is None else budget.capacity_seconds
        neighbours = interference(buffers)
        return pack_exactly(buffers, neighbours, capacity=capacity, seconds=seconds, seed=budget.seed).offsets

    yield lambda: stacked(replace(budget, work=0))
    yield exact
    yield lambda: stacked(budget)


def _pile(buffers: Sequence[Buffer], stacking: Stacking) -> list[int]:
    """Return the offsets of `stacking`, each buffer at the lowest multiple of its alignment above those
    below.
    """
    sizes = [b.size.evaluate({}) for b in buffers]
    offsets = [0] * len(buffers)
    for i in stacking.order:
        top = max((offsets[j] + sizes[j] for j in stacking.below[i]), default=0)
        offsets[i] = align_up(top, buffers[i].alignment)
    return offsets
