"""The paths through a function: under which branches a point is reached, and all paths one by one.

Ifs are taken to be independent of each other: a path may take either side of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

from symalloc.analysis.dataflow import DataflowProblem, forward
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.ir import Alias, Block, Function, If, Instruction

PathCondition: TypeAlias = frozenset[tuple[int, bool]]
"""The branches that a path takes: (number of the BRANCH, True for its then-block)."""


def feasible(condition: PathCondition) -> bool:
    """True if one path can take all these branches."""
    return len(condition) < 2 or len({branch for branch, _ in condition}) == len(condition)


@dataclass(frozen=True, slots=True)
class PathConditions:
    """The branches that lead to each point; ELSE and JOIN are reached through the blocks that they end."""

    at: Sequence[PathCondition]

    def reaches(self, first: int, second: int) -> bool:
        """True if some path goes through `first`, then through `second`."""
        return first < second and feasible(self.at[first] | self.at[second])

    def dominates(self, first: int, second: int) -> bool:
        """True if every path to `second` goes through `first` before."""
        return first < second and self.at[first] <= self.at[second]


def path_conditions(cfg: ControlFlowGraph) -> PathConditions:
    """The path conditions of all points of a function."""
    if not cfg.joins:
        return PathConditions((frozenset(),) * len(cfg.points))
    return PathConditions(forward(_Branches(cfg), frozenset()).before)


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
