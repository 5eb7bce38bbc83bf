"""Packs problems whose sizes are all known: integers in, integers out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from symalloc.planner.exact.solve import pack_exactly
from symalloc.planner.exact.static_problem import StaticBuffer
from symalloc.planner.floor import floor_bytes, live_sums
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.stacking import Stacking
from symalloc.planner.search.stacking_search import SearchBudget, search
from symalloc.size.expr import Expr, constant


def pack_static(
    buffers: Sequence[Buffer],
    rounded: Sequence[Buffer],
    neighbours: Mapping[int, frozenset[int]],
    effort: SearchBudget,
    capacity: int | None,
) -> tuple[Mapping[int, Expr], Expr]:
    """Offsets by id and the height of the packing, in bytes; `rounded` has the sizes that piles need.

    Greedy packings are tried first, then the exact method, then local search; the first that reaches the
    floor or lies within `capacity` is the answer, otherwise the lowest.
    """
    sizes = {b.id: b.size.evaluate({}) for b in buffers}
    target = floor_bytes(live_sums(buffers), {}) if capacity is None else capacity

    def height(offsets: Mapping[int, int]) -> int:
        return max((offset + sizes[id_] for id_, offset in offsets.items()), default=0)

    best: Mapping[int, int] | None = None
    for attempt in _attempts(buffers, rounded, neighbours, effort, capacity):
        offsets = attempt()
        if offsets is not None and (best is None or height(offsets) < height(best)):
            best = offsets
        if best is not None and height(best) <= target:
            break
    assert best is not None  # greedy packings always are
    return {id_: constant(offset) for id_, offset in best.items()}, constant(height(best))


def _attempts(
    buffers: Sequence[Buffer],
    rounded: Sequence[Buffer],
    neighbours: Mapping[int, frozenset[int]],
    effort: SearchBudget,
    capacity: int | None,
) -> Iterator[Callable[[], Mapping[int, int] | None]]:
    sums = live_sums(rounded)

    def stacked(how: SearchBudget) -> Mapping[int, int]:
        found = search(rounded, neighbours, {}, replace(how, exact_seconds=0.0), sums)
        return _pile(buffers, found.regimes[-1][1])

    def exact() -> Mapping[int, int] | None:
        static = [
            StaticBuffer(id=b.id, size=b.size.evaluate({}), alignment=b.alignment, live=b.live)
            for b in buffers
        ]
        seconds = effort.exact_seconds if capacity is None else effort.capacity_seconds
        return pack_exactly(static, neighbours, capacity=capacity, seconds=seconds, seed=effort.seed).offsets

    yield lambda: stacked(replace(effort, work=0))
    yield exact
    yield lambda: stacked(effort)


def _pile(buffers: Sequence[Buffer], stacking: Stacking) -> Mapping[int, int]:
    """The offsets of `stacking`, each buffer at the lowest multiple of its alignment above those below."""
    wanted = {b.id: (b.size.evaluate({}), b.alignment) for b in buffers}
    offsets: dict[int, int] = {}
    for id_ in stacking.order:
        top = max((offsets[j] + wanted[j][0] for j in stacking.below[id_]), default=0)
        offsets[id_] = -(-top // wanted[id_][1]) * wanted[id_][1]
    return offsets
