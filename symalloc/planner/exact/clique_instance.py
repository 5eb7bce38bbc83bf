"""A static packing problem, made ready for search: cliques of buffers that are live together, and the floor.

Dynamic storage allocation: each buffer has a size in bytes and a live range; buffers that are live together
must not share a byte.  It is NP-hard (Garey and Johnson 1979, SR2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd

from symalloc.planner.interference import live_sets
from symalloc.planner.memory_plan import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class CliqueInstance:
    """A problem with its buffers numbered 0, 1, … in the order of their first clique, in units.

    `ids` are the indices of these buffers in the sequence that was given; buffers of no size and those that
    are never live are left out.  A unit is the greatest common divisor of the alignments, in bytes; every
    offset is a multiple of it, so `sizes` are rounded up to it.  `members` lists for each clique (a maximal
    set of buffers live at one position) its buffers, `cliques` the other way round.
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

    @classmethod
    def of(cls, buffers: Sequence[Buffer]) -> CliqueInstance:
        """Return the instance of `buffers`, whose sizes are constants."""
        sized = [b.live if b.size.evaluate({}) else () for b in buffers]
        together = _maximal(map(frozenset, live_sets(sized)))
        within: dict[int, list[int]] = {}
        for number, group in enumerate(together):
            for id_ in group:
                within.setdefault(id_, []).append(number)
        ids = sorted(within, key=lambda i: (within[i][0], i))
        index = {id_: i for i, id_ in enumerate(ids)}
        members = tuple(tuple(sorted(index[id_] for id_ in group)) for group in together)
        inside = tuple(tuple(within[id_]) for id_ in ids)
        ordered = [buffers[id_] for id_ in ids]
        nbytes = tuple(b.size.evaluate({}) for b in ordered)
        unit = gcd(*(b.alignment for b in ordered)) or 1
        return cls(
            ids=tuple(ids),
            unit=unit,
            nbytes=nbytes,
            sizes=tuple(-(-size // unit) for size in nbytes),
            alignments=tuple(b.alignment // unit for b in ordered),
            durations=tuple(sum(end - begin for begin, end in b.live) for b in ordered),
            cliques=inside,
            members=members,
            neighbours=tuple(
                tuple(sorted({j for c in mine for j in members[c]} - {i})) for i, mine in enumerate(inside)
            ),
        )

    @property
    def floor(self) -> int:
        """A lower bound of the height in bytes: the largest sum of sizes in one clique.

        Where all share an alignment every buffer but the topmost takes its size rounded up to it.
        """
        unit = self.unit if set(self.alignments) <= {1} else 1
        return max((_stacked([self.nbytes[i] for i in group], unit) for group in self.members), default=0)


def align_up(nbytes: int, alignment: int) -> int:
    """Return the least multiple of `alignment` that is not below `nbytes`."""
    return -(-nbytes // alignment) * alignment


def _stacked(sizes: Sequence[int], step: int) -> int:
    rounded = [align_up(size, step) for size in sizes]
    return sum(rounded) - max(r - s for r, s in zip(rounded, sizes, strict=True))


def _maximal(sets: Iterable[frozenset[int]]) -> tuple[frozenset[int], ...]:
    """Drop the sets that are within another, and repetitions; keep the order."""
    unique = tuple(dict.fromkeys(s for s in sets if s))
    holding: dict[int, list[frozenset[int]]] = {}
    for s in unique:
        for id_ in s:
            holding.setdefault(id_, []).append(s)
    return tuple(s for s in unique if not any(s < other for other in holding[next(iter(s))]))
