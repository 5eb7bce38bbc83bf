"""The effect of each path through a function that is plain on that path, see `plain_function`.

Paths are read together as far as they go the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import NamedTuple, Self

from symalloc.analysis.paths import Sides, Stretch, walk_paths
from symalloc.analysis.plain_function import (
    READERS,
    NotPlainError,
    PlainFunction,
    PlainReader,
    regions_in,
)
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph


class PlainPath(NamedTuple):
    """The effect of one path, at program points of the whole function.

    `yielded` holds, of each region that an If has yielded, the position at which the last one did.
    """

    function: PlainFunction
    yielded: Mapping[int, int]


def plain_paths(
    cfg: ControlFlowGraph, program: ir.Program, *, most: int
) -> list[tuple[Sides, PlainPath | None]] | None:
    """The sides that each path through a function of `program` takes, and its effect where it is plain.

    Two Ifs on one variable go the same way.  None where there are more than `most` paths.
    """
    found = walk_paths(cfg, _PathReader(program, cfg), most=most, alike=True)
    return None if found is None else [(sides, reader.path(cfg)) for sides, reader in found]


class _PathReader(PlainReader):
    """Reads one path, as long as it is `plain`."""

    def __init__(self, program: ir.Program, cfg: ControlFlowGraph) -> None:
        super().__init__(program)
        self.yielded: dict[int, int] = {}
        self.plain = True
        try:
            self.parameters(cfg.function)
        except NotPlainError:
            self.plain = False

    def take(self, stretch: Stretch) -> None:
        if not self.plain:
            return
        try:
            for point, instruction in stretch:
                READERS.get(type(instruction), PlainReader.unread)(self, point, instruction)
        except NotPlainError:
            self.plain = False

    def join(self, branch: ir.If, yielded: ir.Operand | None) -> None:
        value = self.values[branch.var] = self.value(yielded)
        self.yielded.update(dict.fromkeys(regions_in(value), len(self.touched.points)))

    def fork(self) -> Self:
        other = copy(self)
        other.values, other.nbytes, other.called = {**self.values}, {**self.nbytes}, [*self.called]
        other.allocated, other.yielded = {**self.allocated}, {**self.yielded}
        other.touched = self.touched.copy()
        return other

    def path(self, cfg: ControlFlowGraph) -> PlainPath | None:
        return PlainPath(self.found(cfg), self.yielded) if self.plain else None
