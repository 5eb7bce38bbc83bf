"""The paths through a function: under which branches a point is reached, and all paths one by one.

Ifs are taken to be independent of each other here; `symalloc.analysis.feasibility` knows which are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from symalloc.program.control_flow import ControlFlowGraph, Sides
from symalloc.program.ir import Alias, Block, Function, If, Instruction, Operand, Var

PathCondition: TypeAlias = frozenset[tuple[int, bool]]
"""The branches that a path takes: (number of the BRANCH, True for its then-block)."""

EVERY_PATH: PathCondition = frozenset()
"""The condition that every path meets."""


def consistent(condition: PathCondition) -> bool:
    """True if no If is taken both ways."""
    return len(condition) < 2 or len({branch for branch, _ in condition}) == len(condition)


def path_conditions(cfg: ControlFlowGraph) -> Sequence[PathCondition]:
    """The branches that lead to each point; ELSE and JOIN are reached through the blocks that they end."""
    return [frozenset(sides) for sides in cfg.sides]


_Walk: TypeAlias = tuple[Sides, Mapping[Operand, bool], list[Instruction], list[Instruction]]
"""A path so far: how it decided Ifs on variables, what it made, and the rest, the next one last."""


class StraightPath(NamedTuple):
    """A path through a function: the `sides` that it takes, and the function that goes this way only."""

    sides: Sides
    function: Function


def enumerate_paths(cfg: ControlFlowGraph, *, most: int) -> list[StraightPath] | None:
    """The paths through a function, an If standing as an alias of what its branch yields.

    Two Ifs on one variable go the same way.  None where there are more than `most` paths.
    """
    found: list[StraightPath] = []
    start: _Walk = ((), {}, [], [*reversed(cfg.function.body.instructions)])
    pending = [start]
    while pending:
        if len(found) + len(pending) > most:
            return None
        sides, decided, made, rest = pending.pop()
        while rest and type(rest[-1]) is not If:
            made.append(rest.pop())
        if not rest:
            body = Block(instructions=tuple(made), result=cfg.function.body.result)
            found.append(StraightPath(sides, replace(cfg.function, body=body)))
            continue
        branch = rest.pop()
        assert isinstance(branch, If)
        known = decided.get(branch.test)
        for side in (False, True) if known is None else (known,):
            block = branch.then if side else branch.otherwise
            inner = [*rest, Alias(var=branch.var, source=block.result, span=branch.span)]
            taken = (*sides, (cfg.starts[branch.var], side))
            told = {**decided, branch.test: side} if isinstance(branch.test, Var) else decided
            pending.append((taken, told, [*made], [*inner, *reversed(block.instructions)]))
    return found
