"""The paths through a function: under which branches a point is reached, and all paths one by one.

Ifs are taken to be independent of each other here; `symalloc.analysis.feasibility` knows which are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from symalloc.analysis.dataflow import DataflowProblem, forward
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.ir import Alias, Block, Function, If, Instruction, Var

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


def enumerate_paths(function: Function, *, most: int, alike: bool = False) -> list[Function] | None:
    """`function` once for each path through it, an If standing as an alias of what its branch yields.

    With `alike` two Ifs on one variable go the same way.  None where there are more than `most` paths.
    """
    ways = _paths(function.body, {} if alike else None)
    found = list(islice(ways, most + 1))
    if len(found) > most:
        return None
    result = function.body.result
    return [replace(function, body=Block(instructions=path, result=result)) for path, _ in found]


_Decided: TypeAlias = Mapping[Var, bool] | None


def _paths(block: Block, decided: _Decided) -> Iterator[tuple[tuple[Instruction, ...], _Decided]]:
    """The sequences of instructions that may be executed for `block`, and what the Ifs were decided by.

    `decided` holds that of those in front of it; None where that does not count.
    """
    branches = ((i, one) for i, one in enumerate(block.instructions) if isinstance(one, If))
    at, branch = next(branches, (0, None))
    if branch is None:
        yield block.instructions, decided
        return
    before = block.instructions[:at]
    behind = replace(block, instructions=block.instructions[at + 1 :])
    test = branch.test if decided is not None and isinstance(branch.test, Var) else None
    for side, taken in ((branch.then, True), (branch.otherwise, False)):
        if decided is not None and test is not None:
            if decided.get(test, taken) is not taken:
                continue
            known: _Decided = {**decided, test: taken}
        else:
            known = decided
        for inner, then_known in _paths(side, known):
            joined = Alias(var=branch.var, source=side.result, span=branch.span)
            for rest, rest_known in _paths(behind, then_known):
                yield (*before, *inner, joined, *rest), rest_known
