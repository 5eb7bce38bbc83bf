"""The paths through a function: under which branches a point is reached, and all paths one by one.

Ifs are taken to be independent of each other here; `symalloc.analysis.feasibility` knows which are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, Self, TypeAlias, TypeVar

from symalloc.analysis.dataflow import DataflowProblem, forward
from symalloc.program.control_flow import ControlFlowGraph, PointKind
from symalloc.program.ir import Alias, Block, Function, If, Instruction, Operand, Var

PathCondition: TypeAlias = frozenset[tuple[int, bool]]
"""The branches that a path takes: (number of the BRANCH, True for its then-block)."""

Stretch: TypeAlias = Sequence[tuple[int, Instruction]]
"""Instructions behind each other, each with its program point."""

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


class PathState(Protocol):
    """The state of a path that is walked."""

    def take(self, stretch: Stretch) -> None:
        """Go on by instructions behind each other, none of them an If."""

    def join(self, branch: If, yielded: Operand | None) -> None:
        """Go on behind an If, whose block on this path has yielded a value."""

    def fork(self) -> Self:
        """Return a state of its own, for another path that has gone the same way so far."""


State = TypeVar("State", bound=PathState)


def walk_paths(
    cfg: ControlFlowGraph, start: State, *, most: int, alike: bool = False
) -> list[tuple[Sides, State]] | None:
    """The sides that each path takes, and the state at its end; what paths have in common is taken once.

    With `alike` two Ifs on one variable go the same way.  None where there are more than `most` paths.
    """
    stretches = _stretches(cfg)
    found: list[tuple[Sides, State]] = []
    pending = [_Walk(0, (), {}, start)]
    while pending:
        walk = pending.pop()
        while True:
            stretch = stretches[walk.at]
            walk.state.take(stretch)
            walk.at += len(stretch)
            point = cfg.points[walk.at]
            if not isinstance(point.instruction, If):
                break
            if point.kind is PointKind.BRANCH:
                pending += walk.branch(point.instruction, cfg.joins[walk.at][0], alike=alike)
                if len(found) + len(pending) >= most:
                    return None
            else:
                walk.state.join(point.instruction, point.operand)
                walk.at = cfg.joins[point.branch][1] + 1
        found.append((walk.sides, walk.state))
    return found


def _stretches(cfg: ControlFlowGraph) -> Mapping[int, Stretch]:
    """The instructions between two Ifs, or ends of blocks, by the point behind the first of them."""
    found: dict[int, list[tuple[int, Instruction]]] = {0: []}
    stretch = found[0]
    for number, point in enumerate(cfg.points):
        if point.kind is PointKind.INSTRUCTION and point.instruction is not None:
            stretch.append((number, point.instruction))
        else:
            stretch = found[number + 1] = []
    return found


@dataclass(slots=True)
class _Walk(Generic[State]):
    """A path so far: the point that it is `at`, and how it `decided` Ifs on variables."""

    at: int
    sides: Sides
    decided: Mapping[Var, bool]
    state: State

    def branch(self, branch: If, middle: int, *, alike: bool) -> tuple[_Walk[State], ...]:
        """Enter a block of an If, whose ELSE is `middle`; return the walk into the other one, if any."""
        test = branch.test if alike and isinstance(branch.test, Var) else None
        known = None if test is None else self.decided.get(test)
        if known is not None:
            self.enter(middle, None, then=known)
            return ()
        other = _Walk(self.at, self.sides, self.decided, self.state.fork())
        other.enter(middle, test, then=False)
        self.enter(middle, test, then=True)
        return (other,)

    def enter(self, middle: int, test: Var | None, *, then: bool) -> None:
        """Go to one side of the If that it is at; `test` is decided by that."""
        self.sides = (*self.sides, (self.at, then))
        self.at = self.at + 1 if then else middle + 1
        if test is not None:
            self.decided = {**self.decided, test: then}


def enumerate_paths(cfg: ControlFlowGraph, *, most: int, alike: bool = False) -> list[Function] | None:
    """The function once for each path through it, an If standing as an alias of what its branch yields.

    With `alike` two Ifs on one variable go the same way.  None where there are more than `most` paths.
    """
    found = walk_paths(cfg, _Straight([]), most=most, alike=alike)
    return None if found is None else [straight.of(cfg.function) for _, straight in found]


@dataclass(slots=True)
class _Straight:
    """The instructions of a path."""

    instructions: list[Instruction]

    def take(self, stretch: Stretch) -> None:
        self.instructions += [instruction for _, instruction in stretch]

    def join(self, branch: If, yielded: Operand | None) -> None:
        assert yielded is not None
        self.instructions.append(Alias(var=branch.var, source=yielded, span=branch.span))

    def fork(self) -> Self:
        return replace(self, instructions=[*self.instructions])

    def of(self, function: Function) -> Function:
        """`function` with these for its instructions."""
        body = Block(instructions=tuple(self.instructions), result=function.body.result)
        return replace(function, body=body)
