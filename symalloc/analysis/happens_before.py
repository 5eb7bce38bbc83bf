"""The order in which an executor may run dispatches, and what it means for two memories at the same bytes.

It is that of the text (`total`), that on each device by itself (`lanes`), or any that edges permit (`dag`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import chain, combinations
from operator import and_, or_
from typing import Literal, NamedTuple, TypeAlias

from symalloc.analysis.dependencies import DependencyGraph, EdgeKind, Touch
from symalloc.analysis.sets import RegionSet, members
from symalloc.program.control_flow import PathCondition, consistent

OrderName: TypeAlias = Literal["total", "lanes", "dag"]


class Collision(NamedTuple):
    """A run in which `writer`, which means memory `written`, writes over memory `lost` before `reader` has
    read what `maker` put there: -1 for the entry.  The end of the function reads what is returned.
    """

    lost: int
    written: int
    maker: Touch
    writer: Touch
    reader: Touch

    @property
    def in_order(self) -> bool:
        """True if the order of the program shows it, too."""
        return self.maker.dispatch <= self.writer.dispatch <= self.reader.dispatch

    @property
    def at_once(self) -> bool:
        """True if it takes two dispatches that run at the same time: an If makes and reads what is lost."""
        return self.maker.dispatch == self.reader.dispatch

    @property
    def path(self) -> PathCondition:
        """The branches that such a run takes."""
        return self.maker.path | self.writer.path | self.reader.path

    @property
    def certain(self) -> bool:
        """True unless one of the three may be no access of these memories."""
        return self.maker.certain and self.writer.certain and self.reader.certain


@dataclass(frozen=True, kw_only=True)
class HappensBefore:
    """The order in which an executor may run the dispatches of `graph`."""

    graph: DependencyGraph
    order: OrderName

    @cached_property
    def ahead(self) -> Sequence[int]:
        """By dispatch, and for the end of the function, those that are over before it: a bit for each."""
        count = len(self.graph.nodes)
        if self.order == "total":
            return [(1 << number) - 1 for number in range(count + 1)]
        found: list[int] = []
        last: dict[int, int] = {}
        for node, waits in zip(self.graph.nodes, self.graph.predecessors, strict=True):
            before = [*waits, last[node.device]] if node.device in last else [*waits]
            found.append(reduce(lambda known, n: known | found[n] | 1 << n, before, 0))
            if self.order == "lanes":
                last[node.device] = node.number
        return [*found, (1 << count) - 1]

    def is_ahead(self, one: Touch, other: Touch) -> bool:
        """True if a point is over before another, in every run that gets to both."""
        if one.dispatch == other.dispatch or other.dispatch < 0:
            return one.point < other.point
        return bool(self.ahead[other.dispatch] >> one.dispatch & 1)

    def apart(self, one: int, other: int) -> bool:
        """True if all that touches one of two memories is over before anything touches the other."""
        both = self.graph.touches.keys() >= {one, other}
        return not both or self.is_over(one, other) or self.is_over(other, one)

    def is_over(self, one: int, other: int) -> bool:
        """True if all that touches `one` is over before anything touches `other`."""
        left = self.users[one] & ~self.common[other]
        if left & ~self.users[other]:
            return False
        late = [t for t in self.graph.touches[one] if left >> t.dispatch & 1]
        return all(self.is_ahead(a, b) for a in late for b in self.graph.touches[other])

    @cached_property
    def users(self) -> dict[int, int]:
        """By memory, the dispatches that touch it."""
        touches = self.graph.touches.items()
        return {memory: reduce(or_, (1 << t.dispatch for t in of)) for memory, of in touches}

    @cached_property
    def common(self) -> dict[int, int]:
        """By memory, the dispatches that are over before anything touches it."""
        touches = self.graph.touches.items()
        return {memory: reduce(and_, (self.ahead[t.dispatch] for t in of)) for memory, of in touches}

    def collisions(self, one: int, other: int) -> Sequence[Collision]:
        """The runs in which one of two memories at the same bytes is lost before it is read; first those that
        take no two dispatches at the same time, and another order.
        """
        found = [] if self.apart(one, other) else [*self._losses(one, other), *self._losses(other, one)]
        return sorted(found, key=lambda loss: (loss.at_once, loss.in_order, not loss.certain))

    def _losses(self, lost: int, written: int) -> Iterator[Collision]:
        touches = self.graph.touches
        for reader in (t for t in touches[lost] if not t.writes):
            made = [t for t in touches[lost] if t.writes and self._feeds(t, reader)]
            for writer in (t for t in touches[written] if t.writes and not self.is_ahead(reader, t)):
                for maker in made or [Touch(-1, -1, True, lost)]:  # the entry: its caller wrote it
                    loss = Collision(lost, written, maker, writer, reader)
                    if not self.is_ahead(writer, maker) and consistent(loss.path):
                        yield loss

    def _feeds(self, maker: Touch, reader: Touch) -> bool:
        """True for a point that may have made what another reads."""
        if maker.dispatch == reader.dispatch or reader.dispatch == len(self.graph.nodes):
            return maker.point < reader.point
        return (maker.dispatch, reader.dispatch) in self._data

    @cached_property
    def _data(self) -> set[tuple[int, int]]:
        return {(e.source, e.target) for e in self.graph.edges if e.kind is EdgeKind.DATA}

    def showing(self, found: Collision) -> tuple[int, ...]:
        """An order of the dispatches, which the executor may choose, that shows a collision."""
        order: dict[int, None] = {}
        first = (n for n in (found.maker.dispatch, found.writer.dispatch) if n >= 0)
        for n in (*first, *range(len(self.graph.nodes))):
            order.update(dict.fromkeys((*members(RegionSet(self.ahead[n])), n)))
        return tuple(order)


def placed_together(graph: DependencyGraph) -> Iterator[tuple[int, int]]:
    """The pairs of memories that are tensors on one storage."""
    on: defaultdict[int, list[int]] = defaultdict(list)
    for number in graph.touches:
        region = graph.points_to.regions[number]
        if region.parent is not None:
            on[region.root].append(number)
    return chain.from_iterable(combinations(placed, 2) for placed in on.values())
