"""Orders of buffers, bottom first, whose stacking is at the floor whatever the sizes: live ranges show it.

Buffers fall into parts that never meet, each as high as it is by itself.  In a part, what meets all of the
others lies at the bottom: where each is live in one interval, it is live where the rest is highest.  Else
there may be two layers, each of buffers that never meet: the upper ones start where the largest below them
ends, and each such pair is live at some position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from symalloc.planner.interference import neighbours
from symalloc.planner.memory_plan import Buffer
from symalloc.size.expr import Expr

FEW = 32  # buffers that are taken apart where more than two are live at once
LAYERS = 2


def certain_order(buffers: Sequence[Buffer], most: int) -> list[int] | None:
    """Return such an order, by index; None where none is seen.  At most `most` buffers are live at once."""
    if most > LAYERS and len(buffers) > FEW:
        return None
    kinds: dict[Expr, int] = {}
    meeting = _Meetings(
        neighbours=neighbours(buffers),
        sizes=[kinds.setdefault(b.size, len(kinds)) for b in buffers],
        single=all(len(b.live) == 1 for b in buffers),
    )
    return meeting.order(frozenset(range(len(buffers))))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meetings:
    """The buffers that each is live together with, by index, and their sizes, by number; `single`: each is
    live in one interval.
    """

    neighbours: Sequence[AbstractSet[int]]
    sizes: Sequence[int]
    single: bool

    def order(self, members: frozenset[int]) -> list[int] | None:
        """Return an order of `members`; None where none is seen."""
        found: list[int] = []
        for part in self.parts(members):
            order = self.layers(part) or self.above(part)
            if order is None:
                return None
            found += order
        return found

    def above(self, part: frozenset[int]) -> list[int] | None:
        """Return what meets all the others, and an order of these behind it; None where none is seen."""
        bottom = sorted(i for i in part if self.single and len(part & self.neighbours[i]) == len(part) - 1)
        rest = self.order(part.difference(bottom)) if bottom else None
        return None if rest is None else [*bottom, *rest]

    def parts(self, members: frozenset[int]) -> Iterator[frozenset[int]]:
        """Yield what is joined by neighbours among `members`."""
        left = set(members)
        for start in sorted(members):
            if start in left:
                left.remove(start)
                part = [start]
                for one in part:  # which grows
                    new = self.neighbours[one] & left
                    left -= new
                    part += new
                yield frozenset(part)

    def layers(self, part: frozenset[int]) -> list[int] | None:
        """Return the lower of two layers and then the upper one; None where two in a layer would meet."""
        start = min(part)
        layer, waiting = {start: 0}, [start]
        while waiting:
            one = waiting.pop()
            side = layer[one]
            for other in self.neighbours[one] & part:
                if other not in layer:
                    layer[other] = 1 - side
                    waiting.append(other)
                elif layer[other] == side:
                    return None
        sides = [sorted(i for i in part if layer[i] == side) for side in range(LAYERS)]
        lower, upper = min((sides, sides[::-1]), key=lambda both: self.alternatives(both[1], part))
        return [*lower, *upper]

    def alternatives(self, upper: Sequence[int], part: frozenset[int]) -> int:
        """Return how many sizes the offsets of an upper layer are the largest of."""
        return sum(len({self.sizes[below] for below in self.neighbours[i] & part}) for i in upper)
