"""The dataflow driver: the only place where a pass goes through branches and joins.

A problem says what a program point does to a state (`transfer`), how the states of two blocks become one
(`join`), and, where it matters, what crossing into or out of a block does (`edge`).  `forward` and `backward`
solve it in one pass, for control has no loops.  States are values: `transfer`, `join` and `edge` return a
state, possibly the one that they are given, and change none.

    class _Killed(DataflowProblem[frozenset[Var]]):
        def transfer(self, point: int, state: frozenset[Var]) -> frozenset[Var]:
            killed = self.cfg.points[point].instruction
            return state | {killed.target} if isinstance(killed, Kill) else state

        def join(self, branch, then, otherwise):
            return then | otherwise

    killed_before = forward(_Killed(cfg), frozenset()).before

ELSE is the end of the then-block and JOIN the end of the else-block, where the two yield their values; the
states `before` and `after` them are those of that block.  Forwards, the joined state is the one `before` the
point behind JOIN; backwards, it is the one `after` BRANCH.  The then-block starts at the point behind BRANCH,
the else-block at the one behind ELSE; an empty block starts at its end.

State types need not be sets of bits: facts, path conditions and symbolic values pass through the same driver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from symalloc.program.control_flow import ControlFlowGraph, PointKind

State = TypeVar("State")


class DataflowProblem(ABC, Generic[State]):
    """One analysis of the function that `cfg` lays out."""

    def __init__(self, cfg: ControlFlowGraph) -> None:
        self.cfg = cfg

    @abstractmethod
    def transfer(self, point: int, state: State) -> State:
        """Return the state behind `point`, given the one in front of it; backwards the other way round."""

    @abstractmethod
    def join(self, branch: int, then: State, otherwise: State) -> State:
        """Merge the states at the ends (backwards: at the starts) of the two blocks of the If at `branch`."""

    def edge(self, branch: int, state: State, *, then: bool) -> State:
        """Return `state` as seen inside one block of the If at `branch`.

        `state` is forwards the one behind BRANCH, backwards the one behind the join.
        """
        del branch, then
        return state


class States(NamedTuple, Generic[State]):
    """The solution: by program point the state in front of it and the state behind it."""

    before: Sequence[State]
    after: Sequence[State]


def forward(problem: DataflowProblem[State], entry: State) -> States[State]:
    """Solve a forward problem; `entry` is the state at the entry of the function."""
    before: list[State] = []
    after: list[State] = []
    outside: list[State] = []  # by open If: behind its BRANCH, from ELSE on at the end of its then-block
    state, transfer = entry, problem.transfer
    for index, point in enumerate(problem.cfg.points):
        before.append(state)
        state = transfer(index, state)
        after.append(state)
        kind = point.kind
        if kind is PointKind.INSTRUCTION:
            continue
        if kind is PointKind.BRANCH:
            outside.append(state)
            state = problem.edge(index, state, then=True)
        elif kind is PointKind.ELSE:
            state, outside[-1] = problem.edge(point.branch, outside[-1], then=False), state
        elif kind is PointKind.JOIN:
            state = problem.join(point.branch, outside.pop(), state)
    return States(before, after)


def walk_backward(problem: DataflowProblem[State], exit_: State) -> Iterator[tuple[int, State, State]]:
    """Solve a backward problem point by point, from the last on: (point, state in front, state behind).

    No state is kept but those of the Ifs around a point.
    """
    state, transfer, points = exit_, problem.transfer, problem.cfg.points
    outside: list[State] = []  # by open If: behind its JOIN, from ELSE on at the start of its else-block
    for index in range(len(points) - 1, -1, -1):
        point = points[index]
        kind = point.kind
        if kind is PointKind.JOIN:
            outside.append(state)
            state = problem.edge(point.branch, state, then=False)
        elif kind is PointKind.ELSE:
            behind, outside[-1] = outside[-1], state
            state = problem.edge(point.branch, behind, then=True)
        elif kind is PointKind.BRANCH:
            state = problem.join(index, state, outside.pop())
        behind, state = state, transfer(index, state)
        yield index, state, behind
