"""Live ranges over the If tree: from the allocation to the last use of any alias, on each path by itself.

Positions number the instructions in order; an If takes one for its test, then come its then-branch and its
else-branch.  Memory that only one branch uses is not live in the other, so the two sides may share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from symalloc.plan.aliases import Aliases
from symalloc.plan.model import LiveRange
from symalloc.program.model import (
    AllocFresh,
    Block,
    CallFunction,
    CallKernel,
    CallOperator,
    CallPacked,
    CallTIR,
    Function,
    If,
    Instruction,
    NotUnderstood,
    Operand,
    Var,
    View,
)

__all__ = ["allocations", "live_ranges"]


def allocations(block: Block) -> Iterator[AllocFresh]:
    """The tensors that `block` allocates, nested blocks included, in the order of the text."""
    for instruction in block.instructions:
        match instruction:
            case AllocFresh():
                yield instruction
            case If(then=then, otherwise=otherwise):
                yield from allocations(then)
                yield from allocations(otherwise)


def live_ranges(function: Function, known: Aliases) -> dict[Var, LiveRange]:
    """The live range of each allocation of `function`, by its variable."""
    walk = _Backwards(known=known)
    _number(function.body, walk.positions)
    walk.block(function.body, known.of(function.body.result))
    return {
        var: _merge(sorted(walk.found.get(var, ()))) for var in (a.var for a in allocations(function.body))
    }


def _number(block: Block, positions: dict[Var, int]) -> None:
    """Gives each instruction of `block` the next free position, keyed by its variable."""
    for instruction in block.instructions:
        positions[instruction.var] = len(positions)
        if isinstance(instruction, If):
            _number(instruction.then, positions)
            _number(instruction.otherwise, positions)


def _uses(instruction: Instruction) -> tuple[Operand, ...]:
    """The operands whose memory the instruction touches; bindings only pass a handle on."""
    match instruction:
        case CallKernel(arguments=a) | CallPacked(arguments=a) | CallFunction(arguments=a):
            return a
        case CallOperator(arguments=a) | CallTIR(inputs=a) | NotUnderstood(reads=a):
            return a
        case View(kind="ensure_zero_offset", source=source):
            return (source,)
        case If(test=test):
            return (test,)
    return ()


@dataclass(slots=True, kw_only=True)
class _Backwards:
    known: Aliases
    positions: dict[Var, int] = field(default_factory=dict)
    found: dict[Var, set[int]] = field(default_factory=dict)

    def block(self, block: Block, live: frozenset[Var]) -> frozenset[Var]:
        """What is live before `block`, given what is live behind it."""
        for instruction in reversed(block.instructions):
            if isinstance(instruction, If):
                live = self.branches(instruction, live)
            used = frozenset().union(*map(self.known.of, _uses(instruction)))
            live = live | used
            if isinstance(instruction, AllocFresh):
                live = live | {instruction.var}
            self.record(instruction, live)
            if isinstance(instruction, AllocFresh):
                live = live - {instruction.var}
        return live

    def branches(self, branch: If, live: frozenset[Var]) -> frozenset[Var]:
        """What is live between the test and the branches.  What one side allocates is never live in the
        other.
        """
        in_then = frozenset(a.var for a in allocations(branch.then))
        in_otherwise = frozenset(a.var for a in allocations(branch.otherwise))
        then = self.block(branch.then, live - in_otherwise)
        otherwise = self.block(branch.otherwise, live - in_then)
        return (then | otherwise) - in_then - in_otherwise

    def record(self, instruction: Instruction, live: frozenset[Var]) -> None:
        position = self.positions[instruction.var]
        for token in live:
            self.found.setdefault(token, set()).add(position)


def _merge(positions: list[int]) -> LiveRange:
    """Half-open intervals that cover sorted `positions`."""
    merged: list[tuple[int, int]] = []
    for position in positions:
        if merged and merged[-1][1] == position:
            merged[-1] = (merged[-1][0], position + 1)
        else:
            merged.append((position, position + 1))
    return tuple(merged)
