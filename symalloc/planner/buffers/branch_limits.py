"""The bytes that are taken on every path through a function with many, found block by block.

All paths through an If go one of its two ways: they take at least the lesser of what the sides take at most.
At a point all those blocks are gone through that are around it, and one side of each other If in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from symalloc.planner.grid import Values
from symalloc.program.control_flow import BlockNesting


def least_on_paths(need: Values, steps: Sequence[int], nesting: BlockNesting) -> Values:
    """Return for each column the most bytes that are taken at some moment on each path through it.

    `need` has a row for each column: what is taken there; `steps` are their program points.
    """
    root = _Block(need.shape[1])
    blocks = []
    for step, row in zip(steps, need, strict=True):
        block = root
        for branch, span in nesting.around(step):
            block = block.side(branch, span)
        block.own = np.maximum(block.own, row)
        blocks.append(block)
    found = dict(root.limits(np.zeros(need.shape[1])))
    limits = [np.maximum(found[id(block)], row) for block, row in zip(blocks, need, strict=True)]
    return np.array(limits).reshape(need.shape)


@dataclass(slots=True)
class _Block:
    """A block: what is taken at most outside the Ifs in it, and the sides of these, by BRANCH and points."""

    bindings: int
    own: Values = field(init=False)
    ifs: dict[int, dict[tuple[int, int], _Block]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.own = np.zeros(self.bindings)

    def side(self, branch: int, span: tuple[int, int]) -> _Block:
        """One side of an If, made when it is first asked for."""
        return self.ifs.setdefault(branch, {}).setdefault(span, _Block(self.bindings))

    def least(self) -> Values:
        """The bytes that each way through the block takes at some moment."""
        found = self.own
        for sides in self.ifs.values():
            found = np.maximum(found, _lesser(sides))
        return found

    def limits(self, around: Values) -> Iterator[tuple[int, Values]]:
        """Yield the limit of each block in here, by identity; `around` is taken outside."""
        others = {branch: _lesser(sides) for branch, sides in self.ifs.items()}
        here = np.maximum(around, self.own)
        yield id(self), np.maximum.reduce([here, *others.values()])
        for branch, sides in self.ifs.items():
            rest = np.maximum.reduce([here, *(v for other, v in others.items() if other != branch)])
            for side in sides.values():
                yield from side.limits(rest)


def _lesser(sides: dict[tuple[int, int], _Block]) -> Values:
    """The bytes that both sides of an If take; none where one of them takes nothing."""
    if len(sides) < 2:
        (only,) = sides.values()
        return np.zeros(only.bindings)
    found: Values = np.minimum.reduce([side.least() for side in sides.values()])
    return found
