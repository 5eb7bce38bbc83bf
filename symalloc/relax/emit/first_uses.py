"""Where arenas that could be reserved at entry are first used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from symalloc.planner.memory_plan import Plan
from symalloc.program.model import Block, If, Instruction, Var


def first_uses(plan: Plan, body: Block) -> Mapping[Var, Sequence[int]]:
    """The arenas of `plan` (by index) that wait for nothing, each under the instruction of `body` in front of
    which it is reserved: none is held before something lies in it.
    """
    homes: dict[Var, set[int]] = {}
    for index, arena in enumerate(plan.arenas):
        for placement in arena.placements if arena.after is None else ():
            if placement.buffer.var is not None:
                homes.setdefault(placement.buffer.var, set()).add(index)
    found: dict[Var, Sequence[int]] = {}
    reserved: set[int] = set()
    for instruction in body.instructions:
        used = set().union(*(homes.get(var, ()) for var in _bound(instruction))) - reserved
        if used:
            found[instruction.var] = sorted(used)
            reserved |= used
    return found


def _bound(instruction: Instruction) -> Iterator[Var]:
    """The variables that `instruction` binds, those within its branches too."""
    yield instruction.var
    if isinstance(instruction, If):
        for side in (instruction.then, instruction.otherwise):
            for inner in side.instructions:
                yield from _bound(inner)
