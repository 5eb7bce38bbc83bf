"""The answer of the points-to analysis: the regions of a function, and which of them each variable points
to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from symalloc.analysis.regions import (
    EMPTY,
    AbstractValue,
    Pointees,
    Region,
    Target,
    TuplePointees,
    behind,
    members,
    targets,
)
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.model import Operand, TupleValue, Var


@dataclass(frozen=True, slots=True, kw_only=True)
class MayReturn:
    """A call of `name` whose result may be one of its arguments, that is one of `regions`."""

    name: str
    regions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PointsTo:
    """What the variables of one function point to.

    `values` holds a value for every variable; `defs[i]` are the regions that step i makes and fills.
    `ancestors[r]` are region r and what it is part of, `descendants[r]` region r and its parts.  `storages`,
    `phis` and `views` are the regions of those kinds.  `parameters` are the cells of the parameters, in
    order.
    """

    cfg: ControlFlowGraph
    regions: Sequence[Region]
    values: Mapping[Var, AbstractValue]
    defs: Sequence[int]
    ancestors: Sequence[int]
    descendants: Sequence[int]
    storages: int
    phis: int
    views: int
    result: AbstractValue
    parameters: tuple[Pointees, ...]
    may_returns: tuple[MayReturn, ...]

    def value_of(self, operand: Operand | None) -> AbstractValue:
        """What an operand points to; nothing for literals."""
        return value_of(self.values, operand)

    def targets(self, must: int, may: int = 0) -> Iterator[Target]:
        """The real regions behind a set: choices taken apart."""
        return targets(self.regions, must, may)

    def resolve(self, bits: int) -> int:
        """`bits` with every choice replaced by all that it may be."""
        if not bits & self.phis:
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
        for index in members(bits):
            whole |= self.descendants[index]
        return whole


def value_of(values: Mapping[Var, AbstractValue], operand: Operand | None) -> AbstractValue:
    """What `operand` points to, given the values of the variables."""
    if isinstance(operand, Var):
        return values.get(operand, EMPTY)
    if isinstance(operand, TupleValue):
        return TuplePointees(tuple(value_of(values, item) for item in operand.items))
    return EMPTY
