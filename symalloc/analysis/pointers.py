"""The answer of the points-to analysis: the regions of a function, and which of them each variable points
to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from symalloc.analysis.regions import EMPTY, Cell, Fields, Region, Target, Value, behind, indices, targets
from symalloc.program.flow import Flow
from symalloc.program.model import Operand, TupleValue, Var

__all__ = ["Doubt", "PointsTo", "value_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A call of `name` whose result may be one of its arguments, that is one of `regions`."""

    name: str
    regions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PointsTo:
    """What the variables of one function point to.

    `values` holds a value for every variable; `made[i]` are the regions that step i makes and fills.
    `above[r]` are region r and what it is part of, `below[r]` region r and its parts.  `storages`,
    `choices` and `views` are the regions of those kinds.  `given` are the cells of the parameters, in
    order.
    """

    flow: Flow
    regions: Sequence[Region]
    values: Mapping[Var, Value]
    made: Sequence[int]
    above: Sequence[int]
    below: Sequence[int]
    storages: int
    choices: int
    views: int
    result: Value
    given: tuple[Cell, ...]
    doubts: tuple[Doubt, ...]

    def value_of(self, operand: Operand | None) -> Value:
        """What an operand points to; nothing for literals."""
        return value_of(self.values, operand)

    def targets(self, sure: int, maybe: int = 0) -> Iterator[Target]:
        """The real regions behind a set: choices taken apart."""
        return targets(self.regions, sure, maybe)

    def real(self, bits: int) -> int:
        """`bits` with every choice replaced by all that it may be."""
        if not bits & self.choices:
            return bits
        return behind(self.regions, bits)

    def contents(self, bits: int) -> int:
        """The regions whose bytes are read when those of `bits` are: they and their parts; storages hold
        none.
        """
        bits &= ~self.storages
        if not self.views:
            return bits
        whole = bits
        for index in indices(bits):
            whole |= self.below[index]
        return whole


def value_of(values: Mapping[Var, Value], operand: Operand | None) -> Value:
    """What `operand` points to, given the values of the variables."""
    if isinstance(operand, Var):
        return values.get(operand, EMPTY)
    if isinstance(operand, TupleValue):
        return Fields(tuple(value_of(values, item) for item in operand.items))
    return EMPTY
