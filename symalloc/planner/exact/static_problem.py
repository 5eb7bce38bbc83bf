"""A static packing problem, made ready for search: cliques of buffers that are live together, and the floor.

Dynamic storage allocation: each buffer has a size in bytes and a live range; buffers that are live together
must not share a byte.  It is NP-hard (Garey and Johnson 1979, SR2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from symalloc.planner.memory_plan import LiveRange


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticBuffer:
    """A buffer of `size` bytes (>= 0) whose offset must be a multiple of `alignment` bytes (>= 1)."""

    id: int
    size: int
    live: LiveRange
    alignment: int = 1


def align_up(nbytes: int, alignment: int) -> int:
    """The least multiple of `alignment` that is not below `nbytes`."""
    return -(-nbytes // alignment) * alignment


def cliques(buffers: Sequence[StaticBuffer]) -> tuple[frozenset[int], ...]:
    """The maximal sets of ids that are live at one moment, in the order of time.  Buffers of no size, or
    never live, are in none.
    """
    begins: dict[int, list[tuple[int, int]]] = {}
    for buffer in buffers:
        for begin, end in buffer.live if buffer.size else ():
            begins.setdefault(begin, []).append((end, buffer.id))
    active: list[tuple[int, int]] = []
    found: list[frozenset[int]] = []
    for position in sorted(begins):
        active = [a for a in active + begins[position] if a[0] > position]
        found.append(frozenset(id_ for _, id_ in active))
    return _maximal(found)


def _maximal(sets: Iterable[frozenset[int]]) -> tuple[frozenset[int], ...]:
    """Those of `sets` that are within no other, each once, their order kept."""
    unique = tuple(dict.fromkeys(s for s in sets if s))
    holding: dict[int, list[frozenset[int]]] = {}
    for s in unique:
        for id_ in s:
            holding.setdefault(id_, []).append(s)
    return tuple(s for s in unique if not any(s < other for other in holding[next(iter(s))]))


def floor_of(buffers: Sequence[StaticBuffer], together: Sequence[frozenset[int]]) -> int:
    """A lower bound of the height in bytes: the largest sum of sizes in one of `together` (from `cliques`).

    Where all share an alignment every buffer but the topmost takes its size rounded up to it.
    """
    sizes = {b.id: b.size for b in buffers}
    alignments = {b.alignment for b in buffers}
    step = alignments.pop() if len(alignments) == 1 else 1
    return max((_stacked([sizes[i] for i in s], step) for s in together), default=0)


def _stacked(sizes: Sequence[int], step: int) -> int:
    rounded = [align_up(size, step) for size in sizes]
    return sum(rounded) - max(r - s for r, s in zip(rounded, sizes, strict=True))


def height_of(buffers: Sequence[StaticBuffer], offsets: Mapping[int, int]) -> int:
    """The end of the topmost buffer in bytes; 0 where there is none."""
    return max((offsets[b.id] + b.size for b in buffers), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CliqueInstance:
    """A problem with its buffers numbered 0, 1, … in the order of their first clique, in units.

    A unit is the greatest common divisor of the alignments, in bytes; every offset is a multiple of it, so
    `sizes` are rounded up to it.  `cliques` holds for each buffer the numbers of the cliques that it is in,
    `members` the other way round.  Buffers of no size are left out.
    """

    ids: tuple[int, ...]
    unit: int
    nbytes: tuple[int, ...]
    sizes: tuple[int, ...]
    alignments: tuple[int, ...]
    durations: tuple[int, ...]
    cliques: tuple[tuple[int, ...], ...]
    members: tuple[tuple[int, ...], ...]
    neighbours: tuple[tuple[int, ...], ...]


def clique_instance(buffers: Sequence[StaticBuffer], together: Sequence[frozenset[int]]) -> CliqueInstance:
    """`buffers` made ready for search; `together` is `cliques(buffers)`."""
    within: dict[int, list[int]] = {}
    for number, ids in enumerate(together):
        for id_ in sorted(ids):
            within.setdefault(id_, []).append(number)
    ordered = sorted((b for b in buffers if b.id in within), key=lambda b: (within[b.id][0], b.id))
    index = {b.id: i for i, b in enumerate(ordered)}
    members = tuple(tuple(sorted(index[id_] for id_ in ids)) for ids in together)
    inside = tuple(tuple(within[b.id]) for b in ordered)
    unit = gcd(*(b.alignment for b in ordered)) or 1
    return CliqueInstance(
        ids=tuple(b.id for b in ordered),
        unit=unit,
        nbytes=tuple(b.size for b in ordered),
        sizes=tuple(-(-b.size // unit) for b in ordered),
        alignments=tuple(b.alignment // unit for b in ordered),
        durations=tuple(sum(end - begin for begin, end in b.live) for b in ordered),
        cliques=inside,
        members=members,
        neighbours=tuple(
            tuple(sorted({j for c in mine for j in members[c]} - {i})) for i, mine in enumerate(inside)
        ),
    )
