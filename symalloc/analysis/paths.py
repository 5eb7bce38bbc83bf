"""The paths through a function: under which branches a point is reached, and all paths one by one.

Ifs are taken to be independent of each other here; `symalloc.analysis.feasibility` knows which are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from symalloc.analysis.dataflow import DataflowProblem, forward
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.ir import Alias, Block, Function, If, Instruction

PathCondition: TypeAlias = frozenset[tuple[int, bool]]
"""The branches that a path takes: (number of the BRANCH, True for its then-block)."""

EVERY_PATH: PathCondition = frozenset()
"""The condition that every path meets."""


def consistent(condition: PathCondition) -> bool:
    """True if no If is taken both ways."""
    return len(condition) < 2 or len({branch for branch, _ in condition}) == len(condition)


def path_conditions(cfg: ControlFlowGraph) -> Sequence[PathCondition]:
    """The branches that lead to each point; ELSE and JOIN are reached through the blocks that they end."""
    if not cfg.joins:
        return (EVERY_PATH,) * len(cfg.points)
    return forward(_Branches(cfg), EVERY_PATH).before


class _Branches(DataflowProblem[PathCondition]):
    def transfer(self, point: int, state: PathCondition) -> PathCondition:
        return state

    def join(self, branch: int, then: PathCondition, otherwise: PathCondition) -> PathCondition:
        return then & otherwise

    def edge(self, branch: int, state: PathCondition, *, then: bool) -> PathCondition:
        return state | {(branch, then)}


def enumerate_paths(function: Function, *, most: int) -> list[Function] | None:
    """`function` once for each path through it, an If standing as an alias of what its branch yields.

    None where there are more than `most` paths.
    """
    found = list(islice(_paths(function.body), most + 1))
    if len(found) > most:
        return None
    result = function.body.result
    return [replace(function, body=Block(instructions=path, result=result)) for path in found]


def _paths(block: Block) -> Iterator[tuple[Instruction, ...]]:
    """The sequences of instructions that may be executed for `block`."""
    branches = ((i, one) for i, one in enumerate(block.instructions) if isinstance(one, If))
    at, branch = next(branches, (0, None))
    if branch is None:
        yield block.instructions
        return
    before = block.instructions[:at]
    behind = replace(block, instructions=block.instructions[at + 1 :])
    for side in (branch.then, branch.otherwise):
        for inner in _paths(side):
            joined = Alias(var=branch.var, source=side.result, span=branch.span)
            for rest in _paths(behind):
                yield (*before, *inner, joined, *rest)
