"""The paths through a function: under which branches a point is reached, and all paths one by one.

Ifs are taken to be independent of each other here; `symalloc.analysis.feasibility` knows which are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from symalloc.analysis.dataflow import DataflowProblem, forward
from symalloc.program.control_flow import ControlFlowGraph, PointKind
from symalloc.program.ir import Alias, Block, Function, If, Instruction, Var

PathCondition: TypeAlias = frozenset[tuple[int, bool]]
"""The branches that a path takes: (number of the BRANCH, True for its then-block)."""

Sides: TypeAlias = tuple[tuple[int, bool], ...]
"""The branches that a path takes, as above, in order."""

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


class StraightPath(NamedTuple):
    """A path through a function: the `sides` that it takes, and the function that goes this way only."""

    sides: Sides
    function: Function


def enumerate_paths(cfg: ControlFlowGraph, *, most: int) -> list[StraightPath] | None:
    """The paths through a function, an If standing as an alias of what its branch yields.

    Two Ifs on one variable go the same way.  None where there are more than `most` paths.
    """
    runs = _runs(cfg)
    found: list[StraightPath] = []
    pending = [_Walk(0, (), {}, [])]
    while pending:
        walk = pending.pop()
        while True:
            run = runs[walk.at]
            walk.instructions += run
            walk.at += len(run)
            point = cfg.points[walk.at]
            made, yielded = point.instruction, point.operand
            if not isinstance(made, If):
                break
            if yielded is None:
                pending += walk.branch(made, cfg.joins[walk.at][0])
                if len(found) + len(pending) >= most:
                    return None
            else:
                walk.instructions.append(Alias(var=made.var, source=yielded, span=made.span))
                walk.at = cfg.joins[point.branch][1] + 1
        body = Block(instructions=tuple(walk.instructions), result=cfg.function.body.result)
        found.append(StraightPath(walk.sides, replace(cfg.function, body=body)))
    return found


def _runs(cfg: ControlFlowGraph) -> Mapping[int, Sequence[Instruction]]:
    """The instructions between two Ifs, or ends of blocks, by the point of the first of them."""
    found: dict[int, list[Instruction]] = {0: []}
    run = found[0]
    for number, point in enumerate(cfg.points):
        if point.kind is PointKind.INSTRUCTION and point.instruction is not None:
            run.append(point.instruction)
        else:
            run = found[number + 1] = []
    return found


@dataclass(slots=True)
class _Walk:
    """A path so far: the point that it is `at`, and how it `decided` Ifs on variables."""

    at: int
    sides: Sides
    decided: Mapping[Var, bool]
    instructions: list[Instruction]

    def branch(self, branch: If, middle: int) -> tuple[_Walk, ...]:
        """Enter a block of an If, whose ELSE is `middle`; return the walk into the other one, if any."""
        test = branch.test if isinstance(branch.test, Var) else None
        known = None if test is None else self.decided.get(test)
        if known is not None:
            self.enter(middle, None, then=known)
            return ()
        other = _Walk(self.at, self.sides, self.decided, [*self.instructions])
        other.enter(middle, test, then=False)
        self.enter(middle, test, then=True)
        return (other,)

    def enter(self, middle: int, test: Var | None, *, then: bool) -> None:
        """Go to one side of the If that it is at; `test` is decided by that."""
        self.sides = (*self.sides, (self.at, then))
        self.at = self.at + 1 if then else middle + 1
        if test is not None:
            self.decided = {**self.decided, test: then}
