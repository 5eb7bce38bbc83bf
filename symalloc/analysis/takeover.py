"""Whether one memory can take over another: where the one is written while the other is still wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from symalloc.analysis.effects import Effect
from symalloc.analysis.overwrites import Access, Paths, feasible
from symalloc.analysis.pointers import PointsTo
from symalloc.analysis.regions import members


class Clash(NamedTuple):
    """On some path step `writer` writes the one memory, and the same step or a later one, `reader`, touches
    the other.  `certain` unless it takes a function of unknown ownership to return its argument.
    """

    writer: int
    reader: int
    certain: bool


def clashes(points_to: PointsTo, paths: Paths, writes: int, wanted: int) -> Iterator[Clash]:
    """Where root `writes` is written before root `wanted` is touched for the last time.

    What `wanted` holds is taken to be needed whenever something touches it: to write all of it anew would
    spoil what was written into its memory.  Clashes within one step come last.
    """
    written = _accesses(points_to, paths.writes, writes)
    touched = [*_accesses(points_to, paths.reads, wanted), *_accesses(points_to, paths.writes, wanted)]
    found = {
        (w.step == t.step, w.step, t.step, not (w.certain and t.certain))
        for w in written
        for t in touched
        if t.step >= w.step and feasible(w.path | t.path)
    }
    for _, writer, reader, doubtful in sorted(found):
        yield Clash(writer, reader, not doubtful)


def meetings(points_to: PointsTo, paths: Paths, one: int, other: int) -> Iterator[Clash]:
    """Where one path touches both roots."""
    for root, wanted in ((one, other), (other, one)):
        first = [*_accesses(points_to, paths.reads, root), *_accesses(points_to, paths.writes, root)]
        second = [*_accesses(points_to, paths.reads, wanted), *_accesses(points_to, paths.writes, wanted)]
        for a in first:
            for b in second:
                if a.step <= b.step and feasible(a.path | b.path):
                    yield Clash(a.step, b.step, a.certain and b.certain)


def keepers(points_to: PointsTo, effects: Sequence[Effect], root: int) -> Iterator[int]:
    """The steps whose callee may hold on to root `root` when they are over."""
    for index, effect in enumerate(effects):
        if effect.captures and any(
            points_to.regions[r].root == root for r in members(points_to.resolve(effect.captures))
        ):
            yield index


def _accesses(points_to: PointsTo, table: Mapping[int, Sequence[Access]], root: int) -> Iterator[Access]:
    """The accesses to any region of `root` behind the entry to the function."""
    for region in members(points_to.descendants[root]):
        yield from (access for access in table.get(region, ()) if access.step >= 0)
