"""A function laid out flat: its If tree as one list of steps, so that every analysis is a loop and none
recurses.

An If becomes four kinds of steps around its blocks: IF (its test is evaluated), the steps of the
then-block, ELSE, the steps of the else-block, JOIN (its variable is bound).  One END step stands last and
holds the function's result. Control only flows forwards: from IF to the step behind it or behind ELSE,
from ELSE and from the step before JOIN to JOIN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from symalloc.program.model import Block, Function, If, Instruction, Operand, Var
from symalloc.program.operands import variables_in, variables_of

__all__ = ["Flow", "Mark", "Step", "flatten", "positions"]


class Mark(IntEnum):
    """What a step stands for."""

    PLAIN = 0
    IF = 1
    ELSE = 2
    JOIN = 3
    END = 4


class Step(NamedTuple):
    """One step.

    `operand` is the value that a block yields: of the then-block at ELSE, of the else-block at JOIN, of
    the function at END.  `uses` are the variables that the step refers to.  `first` is the index of the
    IF step that ELSE and JOIN belong to, -1 elsewhere.
    """

    mark: Mark
    instruction: Instruction | None
    uses: tuple[Var, ...]
    operand: Operand | None = None
    first: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The steps of a function; `joins` gives for the index of an IF step those of its ELSE and its JOIN."""

    function: Function
    steps: tuple[Step, ...]
    joins: dict[int, tuple[int, int]]


class _Frame(NamedTuple):
    """A block being laid out; `side` counts the blocks of its If that are finished."""

    instructions: Iterator[Instruction]
    block: Block
    branch: If | None
    first: int
    side: int


def flatten(function: Function) -> Flow:
    """The steps of `function` in order."""
    steps: list[Step] = []
    joins: dict[int, tuple[int, int]] = {}
    stack = [_Frame(iter(function.body.instructions), function.body, None, -1, 0)]
    while stack:
        frame = stack[-1]
        opened = _run(frame.instructions, steps)
        if opened is not None:
            stack.append(_Frame(iter(opened.then.instructions), opened.then, opened, len(steps) - 1, 0))
            continue
        stack.pop()
        following = _close(frame, steps, joins)
        if following is not None:
            stack.append(following)
    return Flow(function=function, steps=tuple(steps), joins=joins)


def _run(instructions: Iterator[Instruction], steps: list[Step]) -> If | None:
    """Lays out instructions up to and with the next If, which it returns."""
    for instruction in instructions:
        if isinstance(instruction, If):
            steps.append(Step(Mark.IF, instruction, variables_of(instruction)))
            return instruction
        steps.append(Step(Mark.PLAIN, instruction, variables_of(instruction)))
    return None


def _close(frame: _Frame, steps: list[Step], joins: dict[int, tuple[int, int]]) -> _Frame | None:
    """Ends a block; returns the else-block where that is what follows."""
    result = frame.block.result
    used = tuple(variables_in(result))
    if frame.branch is None:
        steps.append(Step(Mark.END, None, used, result))
        return None
    here = len(steps)
    if frame.side == 0:
        joins[frame.first] = (here, here)
        steps.append(Step(Mark.ELSE, frame.branch, used, result, frame.first))
        other = frame.branch.otherwise
        return _Frame(iter(other.instructions), other, frame.branch, frame.first, 1)
    joins[frame.first] = (joins[frame.first][0], here)
    steps.append(Step(Mark.JOIN, frame.branch, used, result, frame.first))
    return None


def positions(flow: Flow) -> dict[Var, int]:
    """The index of the step that starts each instruction, by its variable; of an If its IF step."""
    starts = (Mark.PLAIN, Mark.IF)
    return {
        step.instruction.var: index
        for index, step in enumerate(flow.steps)
        if step.instruction is not None and step.mark in starts
    }
