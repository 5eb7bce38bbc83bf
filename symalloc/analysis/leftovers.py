"""Leftovers: what a tensor in an arena finds there of another one that is over.

An arena is a tensor of bytes that is never used itself: all that reads and writes does so through views, at
whose places tensors take turns.  A view that is made when another has had a life of its own, written, read
and never touched again, is meant to be written before it is read, though it shares bytes with the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from symalloc.analysis.content import Content
from symalloc.analysis.effects import Effect
from symalloc.analysis.points_to import PointsTo
from symalloc.analysis.regions import RegionKind
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members
from symalloc.program.operands import tensor_type
from symalloc.size.cached_property import cached_property

_BYTES = frozenset({"int8", "uint8"})


class Leftovers:
    """The turns that the views of one function take."""

    def __init__(self, points_to: PointsTo, effects: Sequence[Effect], content: Content) -> None:
        self.points_to, self.effects, self.content = points_to, effects, content

    def is_one(self, number: int, reader: int) -> bool:
        """True if what region `number` holds is a leftover for `reader`, another view of the same arena."""
        one, other = self.view_in_arena(number), self.view_in_arena(reader)
        if one is None or other is None or one == other:
            return False
        if not self.points_to.descendants[one] & self.read:
            return False
        return self.last_touch.get(one, -1) < self.made_at(other)

    def view_in_arena(self, number: int) -> int | None:
        """The view of an arena that a region is, or is a view of; None for anything else."""
        regions, region = self.points_to.regions, self.points_to.regions[number]
        while region.kind is RegionKind.VIEW and region.parent is not None:
            parent = regions[region.parent]
            if parent.kind is not RegionKind.VIEW:
                return region.number if contains(self.arenas, parent.number) else None
            region = parent
        return None

    def made_at(self, number: int) -> int:
        """The point that makes a view."""
        made = self.points_to.regions[number].instruction
        return -1 if made is None else self.points_to.cfg.starts.get(made.var, -1)

    @cached_property
    def arenas(self) -> RegionSet:
        """The tensors of bytes on a storage that nothing touches but through views."""
        touched = found = NO_REGIONS
        for effect in self.effects:
            touched |= effect.touched
        for view in members(self.points_to.views):
            parent = self.points_to.regions[view].parent
            region = None if parent is None else self.points_to.regions[parent]
            if region is None or region.kind is not RegionKind.TENSOR or region.var is None:
                continue
            kind = tensor_type(region.var)
            raw = kind is not None and kind.dtype is not None and kind.dtype.name in _BYTES
            if raw and not contains(touched, region.number):
                found |= RegionSet(1 << region.number)
        return found

    @cached_property
    def read(self) -> RegionSet:
        """The regions that something reads."""
        found = NO_REGIONS
        for need in self.content.needs:
            found |= self.points_to.resolve(need.surely)
        return found

    @cached_property
    def last_touch(self) -> dict[int, int]:
        """The last point that reads or writes each view of an arena."""
        found: dict[int, int] = {}
        for point, effect in enumerate(self.effects):
            for number in members(self.points_to.resolve(effect.touched) & self.points_to.views):
                view = self.view_in_arena(number)
                if view is not None:
                    found[view] = point
        return found
