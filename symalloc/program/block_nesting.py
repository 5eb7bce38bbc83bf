"""The blocks of a function within each other: where memory for several instructions can be reserved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from symalloc.program.control_flow import ControlFlowGraph

_Chain: TypeAlias = tuple[tuple[int, bool], ...]


class Reservation(NamedTuple):
    """The points [begin, end) of the block that memory is reserved in, and the one that it is in front of."""

    block: tuple[int, int]
    point: int


@dataclass(slots=True)
class BlockNesting:
    """Finds the innermost block that holds some program points, and the point in it in front of them all."""

    cfg: ControlFlowGraph
    _chains: dict[int, _Chain] = field(default_factory=dict)

    def reservation(self, points: Iterable[int]) -> Reservation:
        """Return where memory that the instructions at `points` share is reserved.

        That is in front of the first of them, or of the If of that block which the first lies in.
        """
        numbers = frozenset(points)
        first = min(numbers)
        if not self.cfg.joins:
            return Reservation(self._range(()), first)
        chain = self._chain(first)
        depth = len(chain)
        for other in numbers if chain else ():
            depth = min(depth, _common(chain, self._chain(other)))
        point = chain[depth][0] if depth < len(chain) else first
        return Reservation(self._range(chain[:depth]), point)

    def around(self, point: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield the blocks of Ifs around a point, the outermost first: the BRANCH, and the points of each."""
        chain = self._chain(point)
        for depth in range(len(chain)):
            yield chain[depth][0], self._range(chain[: depth + 1])

    def _range(self, chain: _Chain) -> tuple[int, int]:
        if not chain:
            return 0, self.cfg.exit + 1
        branch, then = chain[-1]
        middle, join = self.cfg.joins[branch]
        return (branch + 1, middle) if then else (middle + 1, join)

    def _chain(self, point: int) -> _Chain:
        """The blocks around a point, the outermost first: the BRANCH of each, True for its then-block."""
        if not self.cfg.joins:
            return ()
        found = self._chains.get(point)
        if found is None:
            branch = self.cfg.points[point].branch
            around = (
                () if branch < 0 else (*self._chain(branch), (branch, point <= self.cfg.joins[branch][0]))
            )
            found = self._chains[point] = around
        return found


def _common(left: _Chain, right: _Chain) -> int:
    """The number of blocks that both chains begin with."""
    if left is right:
        return len(left)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))
