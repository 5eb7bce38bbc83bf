"""Whether one memory can take over another: where the one is written while the other is still wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from symalloc.analysis.effects import Effect
from symalloc.analysis.overwrites import Access, Paths, possible
from symalloc.analysis.pointers import PointsTo
from symalloc.analysis.regions import indices

__all__ = ["Clash", "clashes", "keepers", "meetings"]


class Clash(NamedTuple):
    """On some path step `writer` writes the one memory, and the same step or a later one, `reader`, touches
    the other.  `certain` unless it takes a function of unknown ownership to return its argument.
    """

    writer: int
    reader: int
    certain: bool


def clashes(points: PointsTo, paths: Paths, writes: int, wanted: int) -> Iterator[Clash]:
    """Where root `writes` is written before root `wanted` is touched for the last time.

    What `wanted` holds is taken to be needed whenever something touches it: to write all of it anew would
    spoil what was written into its memory.  Clashes within one step come last.
    """
    written = _accesses(points, paths.writes, writes)
    touched = [*_accesses(points, paths.reads, wanted), *_accesses(points, paths.writes, wanted)]
    found = {
        (w.step == t.step, w.step, t.step, not (w.certain and t.certain))
        for w in written
        for t in touched
        if t.step >= w.step and possible(w.sides | t.sides)
    }
    for _, writer, reader, doubtful in sorted(found):
        yield Clash(writer, reader, not doubtful)


def meetings(points: PointsTo, paths: Paths, one: int, other: int) -> Iterator[Clash]:
    """Where one path touches both roots."""
    for root, wanted in ((one, other), (other, one)):
        first = [*_accesses(points, paths.reads, root), *_accesses(points, paths.writes, root)]
        second = [*_accesses(points, paths.reads, wanted), *_accesses(points, paths.writes, wanted)]
        for a in first:
            for b in second:
                if a.step <= b.step and possible(a.sides | b.sides):
                    yield Clash(a.step, b.step, a.certain and b.certain)


def keepers(points: PointsTo, effects: Sequence[Effect], root: int) -> Iterator[int]:
    """The steps whose callee may hold on to root `root` when they are over."""
    for index, effect in enumerate(effects):
        if effect.keeps and any(points.regions[r].root == root for r in indices(points.real(effect.keeps))):
            yield index


def _accesses(points: PointsTo, table: Mapping[int, Sequence[Access]], root: int) -> Iterator[Access]:
    """The accesses to any region of `root` behind the entry to the function."""
    for region in indices(points.below[root]):
        yield from (access for access in table.get(region, ()) if access.step >= 0)
