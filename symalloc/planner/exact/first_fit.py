"""First fit over several orders: quick packings that a search starts from, and often the floor already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from symalloc.planner.exact.clique_instance import align_up
from symalloc.planner.memory_plan import Buffer


def first_fits(buffers: Sequence[Buffer], neighbours: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield offsets in bytes, one packing per order: largest first, longest first, largest area first, most
    bytes around it first, and the given order.
    """
    sizes = [b.size.evaluate({}) for b in buffers]
    durations = [sum(end - begin for begin, end in b.live) for b in buffers]
    orders: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (-sizes[i], -durations[i], i),
        lambda i: (-durations[i], -sizes[i], i),
        lambda i: (-sizes[i] * durations[i], i),
        lambda i: (-sum(sizes[j] for j in neighbours[i]), -sizes[i], i),
        lambda i: (),
    )
    alignments = [b.alignment for b in buffers]
    for order in orders:
        yield _first_fit(sorted(range(len(buffers)), key=order), sizes, alignments, neighbours)


def _first_fit(
    order: Iterable[int], sizes: Sequence[int], alignments: Sequence[int], neighbours: Sequence[Sequence[int]]
) -> list[int]:
    """Put each buffer in turn at the lowest place that is free of its neighbours."""
    offsets = [-1] * len(sizes)
    for i in order:
        taken = sorted((offsets[j], offsets[j] + sizes[j]) for j in neighbours[i] if offsets[j] >= 0)
        offsets[i] = _lowest(sizes[i], alignments[i], taken)
    return offsets


def _lowest(size: int, alignment: int, taken: Iterable[tuple[int, int]]) -> int:
    """Return the lowest offset at which `size` bytes touch none of the sorted stretches `taken`."""
    place = 0
    for begin, end in taken:
        if begin >= place + size:
            break
        if end > place:
            place = align_up(end, alignment)
    return place
