"""The dataflow driver, beside an oracle that walks every path of random functions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.analysis.dataflow import DataflowProblem, State, States, forward, walk_backward
from symalloc.analysis.paths import path_conditions
from symalloc.program.control_flow import ControlFlowGraph, PointKind, control_flow_graph
from symalloc.program.ir import Operand
from tests.program.build import NOTHING, Body, param

Points = frozenset[int]
NONE: Points = frozenset()


def backward(problem: DataflowProblem[State], behind: State) -> States[State]:
    """The states of a backward problem in front of and behind each point."""
    solved = [*walk_backward(problem, behind)][::-1]
    return States([front for _, front, _ in solved], [after for _, _, after in solved])


class Passed(DataflowProblem[tuple[Points, Points]]):
    """The points that some path and that every path has passed."""

    def transfer(self, point: int, state: tuple[Points, Points]) -> tuple[Points, Points]:
        return state[0] | {point}, state[1] | {point}

    def join(
        self, branch: int, then: tuple[Points, Points], otherwise: tuple[Points, Points]
    ) -> tuple[Points, Points]:
        return then[0] | otherwise[0], then[1] & otherwise[1]


class Edges(DataflowProblem[tuple[tuple[int, bool], ...]]):
    """The edges into blocks that lead to a point, in order."""

    def transfer(self, point: int, state: tuple[tuple[int, bool], ...]) -> tuple[tuple[int, bool], ...]:
        return state

    def join(
        self, branch: int, then: tuple[tuple[int, bool], ...], otherwise: tuple[tuple[int, bool], ...]
    ) -> tuple[tuple[int, bool], ...]:
        assert (then[-1], otherwise[-1]) == ((branch, True), (branch, False))
        return then[:-1]

    def edge(
        self, branch: int, state: tuple[tuple[int, bool], ...], *, then: bool
    ) -> tuple[tuple[int, bool], ...]:
        return (*state, (branch, then))


@st.composite
def graphs(draw: st.DrawFn) -> ControlFlowGraph:
    body = Body(param("x", 8))

    def block(depth: int) -> Operand:
        for _ in range(draw(st.integers(0, 3))):
            if depth < 3 and draw(st.booleans()):
                body.branch(lambda: block(depth + 1), lambda: block(depth + 1))
            else:
                body.call("read", body.params[0])
        return NOTHING

    block(0)
    return control_flow_graph(body.finish())


def paths(cfg: ControlFlowGraph, start: int = 0) -> Iterator[tuple[int, ...]]:
    """All sequences of points from `start` to the exit, by the definition of the graph."""
    point = cfg.points[start]
    if point.kind is PointKind.EXIT:
        yield (start,)
        return
    if point.kind is PointKind.BRANCH:
        following = [start + 1, cfg.joins[start][0] + 1]
    elif point.kind is PointKind.ELSE:
        following = [cfg.joins[point.branch][1] + 1]
    else:
        following = [start + 1]
    for one in following:
        yield from ((start, *rest) for rest in paths(cfg, one))


@settings(max_examples=100)
@given(graphs())
def test_forward_and_backward_are_what_all_paths_say(cfg: ControlFlowGraph) -> None:
    ways = [way for way, _ in zip(paths(cfg), range(4000), strict=False)]
    if len(ways) == 4000:
        return
    ahead, behind = forward(Passed(cfg), (NONE, NONE)), backward(Passed(cfg), (NONE, NONE))
    for point in range(len(cfg.points)):
        through = [way for way in ways if point in way]
        earlier = [frozenset(way[: way.index(point)]) for way in through]
        later = [frozenset(way[way.index(point) + 1 :]) for way in through]
        assert ahead.before[point] == (reduce(Points.union, earlier), reduce(Points.intersection, earlier))
        assert behind.after[point] == (reduce(Points.union, later), reduce(Points.intersection, later))
        assert ahead.after[point][0] == ahead.before[point][0] | {point}
        assert behind.before[point][0] == behind.after[point][0] | {point}


@settings(max_examples=100)
@given(graphs())
def test_edges_are_those_of_the_path_conditions(cfg: ControlFlowGraph) -> None:
    conditions = path_conditions(cfg)
    for states in (forward(Edges(cfg), ()).before, backward(Edges(cfg), ()).after):
        assert [frozenset(state) for state in states] == list(conditions)
