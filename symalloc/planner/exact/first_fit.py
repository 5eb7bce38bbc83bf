"""First fit over several orders: quick packings that a search starts from, and often the floor already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from symalloc.planner.exact.static_problem import StaticBuffer, align_up


def greedy(
    buffers: Sequence[StaticBuffer], neighbours: Mapping[int, frozenset[int]]
) -> Iterator[dict[int, int]]:
    """Offsets in bytes by id, one packing per order: largest first, longest first, largest area first, most
    bytes around it first, and the given order.
    """
    sizes = {b.id: b.size for b in buffers}
    around = {b.id: sum(sizes[j] for j in neighbours[b.id]) for b in buffers}
    orders: tuple[Callable[[StaticBuffer], tuple[int, ...]], ...] = (
        lambda b: (-b.size, -_duration(b), b.id),
        lambda b: (-_duration(b), -b.size, b.id),
        lambda b: (-b.size * _duration(b), b.id),
        lambda b: (-around[b.id], -b.size, b.id),
        lambda b: (),
    )
    return (first_fit(sorted(buffers, key=order), neighbours) for order in orders)


def first_fit(ordered: Iterable[StaticBuffer], neighbours: Mapping[int, frozenset[int]]) -> dict[int, int]:
    """Offsets in bytes by id: each buffer in turn goes to the lowest place that is free of its neighbours."""
    offsets: dict[int, int] = {}
    ends: dict[int, int] = {}
    for buffer in ordered:
        taken = sorted((offsets[j], ends[j]) for j in neighbours[buffer.id] if j in offsets)
        offsets[buffer.id] = place = _lowest(buffer, taken)
        ends[buffer.id] = place + buffer.size
    return offsets


def _lowest(buffer: StaticBuffer, taken: Iterable[tuple[int, int]]) -> int:
    """The lowest offset at which `buffer` touches none of the sorted stretches `taken`."""
    place = 0
    for begin, end in taken:
        if begin >= place + buffer.size:
            break
        if end > place:
            place = align_up(end, buffer.alignment)
    return place


def _duration(buffer: StaticBuffer) -> int:
    return sum(end - begin for begin, end in buffer.live)
