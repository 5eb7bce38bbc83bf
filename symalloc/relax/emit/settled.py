"""Which tensors can be handed to their users at an offset, and which must be settled at offset zero first.

Only a kernel whose buffer is movable takes an offset.  Everything else may look at the bare pointer: packed
functions, other Relax functions, operators, what is not understood.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from symalloc.program.model import (
    Alias,
    AllocFresh,
    Block,
    CallKernel,
    Function,
    If,
    Instruction,
    MakeTuple,
    MatchCast,
    Operand,
    TakeField,
    Var,
    View,
)
from symalloc.program.operands import variables_in, variables_of

NOTHING: frozenset[Var] = frozenset()
NOWHERE: frozenset[int] = frozenset()
_HANDED_ON = frozenset({Alias, MatchCast, View, MakeTuple, TakeField})


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """`settled`: allocations that some user wants at offset zero.  `shifted`: the positions at which each
    kernel gets others.
    """

    settled: frozenset[Var]
    shifted: Mapping[str, frozenset[int]]


def uses(function: Function, movable: Callable[[str], Collection[int]], shifted: Collection[Var]) -> Uses:
    """Follows the allocations in `shifted` to their users; `movable` gives the positions at which a kernel
    takes an offset.

    A tuple counts as all of its fields: a tensor may be settled needlessly, and none is forgotten.
    """
    walk = _Walk(movable=movable, shifted=frozenset(shifted))
    walk.block(function.body)
    walk.settled |= walk.of(function.body.result)
    return Uses(settled=frozenset(walk.settled), shifted=walk.positions())


@dataclass(slots=True, kw_only=True)
class _Walk:
    movable: Callable[[str], Collection[int]]
    shifted: frozenset[Var]
    values: dict[Var, frozenset[Var]] = field(default_factory=dict)
    settled: set[Var] = field(default_factory=set)
    calls: dict[tuple[str, int], set[Var]] = field(default_factory=dict)

    def of(self, operand: Operand) -> frozenset[Var]:
        """The allocations that `operand` may be, or hold."""
        if type(operand) is Var:
            return self.values.get(operand, NOTHING)
        return self.any_of(tuple(variables_in(operand)))

    def any_of(self, variables: Sequence[Var]) -> frozenset[Var]:
        if len(variables) == 1:
            return self.values.get(variables[0], NOTHING)
        return NOTHING.union(*(self.values.get(v, NOTHING) for v in variables))

    def block(self, block: Block) -> None:
        for instruction in block.instructions:
            self.instruction(instruction)

    def instruction(self, instruction: Instruction) -> None:
        kind = type(instruction)
        if kind is AllocFresh:
            if instruction.var in self.shifted:
                self.values[instruction.var] = frozenset((instruction.var,))
        elif isinstance(instruction, CallKernel):
            self.kernel(instruction)
        elif isinstance(instruction, If):
            self.settled |= self.of(instruction.test)  # the machine reads a condition at its pointer
            self.block(instruction.then)
            self.block(instruction.otherwise)
            self.values[instruction.var] = self.of(instruction.then.result) | self.of(
                instruction.otherwise.result
            )
        elif found := self.any_of(variables_of(instruction)):
            if kind in _HANDED_ON:
                self.values[instruction.var] = found
            else:
                self.settled |= found

    def kernel(self, call: CallKernel) -> None:
        takes = self.movable(call.kernel)
        for position, argument in enumerate(call.arguments):
            found = self.of(argument)
            if not found:
                continue
            if position in takes and isinstance(argument, Var):
                self.calls.setdefault((call.kernel, position), set()).update(found)
            else:
                self.settled |= found

    def positions(self) -> dict[str, frozenset[int]]:
        """Where tensors at an offset arrive, once it is known which are settled."""
        found: dict[str, frozenset[int]] = {}
        for (kernel, position), arrived in self.calls.items():
            if arrived - self.settled:
                found[kernel] = found.get(kernel, NOWHERE) | {position}
        return found
