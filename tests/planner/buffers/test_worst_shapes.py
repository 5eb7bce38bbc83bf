"""Calls that keep their limit between the sample shapes too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from symalloc.planner.buffers import shape_search
from symalloc.planner.buffers.arena_assignment import ArenaAssignment, GivenUp
from symalloc.planner.buffers.arena_attempts import Groups
from symalloc.planner.buffers.call_columns import CallColumns
from symalloc.planner.buffers.call_timeline import CallProfile, CallTimeline, sizes_of
from symalloc.planner.buffers.candidate import Candidate
from symalloc.planner.buffers.sample_shapes import SizeTable, symbols_of
from symalloc.planner.buffers.shape_search import ShapeSearch, WorstShapes
from symalloc.planner.grid import Grid, Values
from symalloc.planner.plan_functions import plan_program
from symalloc.planner.planner_options import PlanOptions
from symalloc.planner.worst_shapes import Growth, worst_shapes
from symalloc.program.ir import Instruction, MakeTuple, Origin, Program, Var
from symalloc.program.types import TensorType
from symalloc.prover.prover import Prover
from symalloc.size.expr import Expr, constant, symbol
from tests.planner.buffers.test_candidates import FLOAT, VOID, X, alloc, function, kernel
from tests.program.build import program_of
from tests.scale import tries

SHARE, SPARE = 0.02, 4096
N, M, K = symbol("n"), symbol("m"), symbol("k")
SIZES = tuple(constant(16) * size for size in (N, M, N * N, M * M))
Y = Var("y", TensorType(shape=(M,), dtype=FLOAT))


SKEWED = (16 * N, 340 * N, 20 * N * N, 2 * (M // 7))


def drawn(names: Sequence[str], random: Random, *, skewed: bool = False) -> list[tuple[int, ...]]:
    larger = {"m": 2**9} if skewed else {}
    return [tuple(larger.get(n, 1) * round(2 ** random.uniform(3, 12)) for n in names) for _ in range(300)]


def timelines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[CallColumns, Grid]]:
    """What searches look at from here on: the call and its shapes, for each time."""
    made: list[tuple[CallColumns, Grid]] = []

    class Noted(CallTimeline):
        def __init__(
            self, columns: CallColumns, table: SizeTable, profiles: Mapping[str, CallProfile]
        ) -> None:
            super().__init__(columns, table, profiles)
            made.append((columns, table.grid))

    monkeypatch.setattr(shape_search, "CallTimeline", Noted)
    return made


def straight(random: Random, sizes: Sequence[Expr] = SIZES) -> Program:
    """Tensors over two symbols, each made of others made before; two of them are returned."""
    made: list[Var] = []
    body: list[Instruction] = []
    for number in range(random.randint(14, 22)):
        one = alloc(f"t{number}", random.choice(sizes))
        read = random.sample(made[-5:], min(len(made), random.randint(1, 2)))
        body += [one, kernel(X, Y, *read, one.var)]
        made.append(one.var)
    result = MakeTuple(var=Var("both", VOID), fields=(made[-1], random.choice(made[2:])))
    found = function(*body, result, result=result.var, params=(X, Y))
    return program_of(replace(found, symbols={"n": Origin.DIMENSION, "m": Origin.DIMENSION}))


@pytest.mark.parametrize("skewed", [False, True])
def test_random_calls_keep_to_limit_and_floor_at_shapes_drawn_afresh(
    monkeypatch: pytest.MonkeyPatch, skewed: bool
) -> None:
    judged = ArenaAssignment.judged
    random, over, above = Random(1), [], []

    def checked(
        self: ArenaAssignment,
        members: Sequence[Candidate],
        columns: CallColumns,
        given_up: GivenUp,
        more: list[Mapping[str, int]],
    ) -> tuple[Groups, float]:
        groups, spread = judged(self, members, columns, given_up, more)
        sizes = sizes_of(columns, self.profiles)
        names = symbols_of(sizes)
        table = SizeTable.at(self.bounds.grid(names, drawn(names, random, skewed=skewed)), sizes).defined()
        if table is not None:
            there = CallTimeline(columns, table, self.profiles)
            over_limit = there.taken(groups) - there.limit
            shares = np.where(over_limit > SPARE, over_limit / np.maximum(there.limit, 1.0), 0.0)
            excess = shares.max(axis=0, initial=0.0)
            over.append((float(excess.max()), table.grid.binding(int(excess.argmax()))))
            above.append(float(there.spread(groups)) / spread)
        return groups, spread

    monkeypatch.setattr(ArenaAssignment, "judged", checked)
    for seed in range(tries(20 if skewed else 45, 600)):
        options = PlanOptions(flavour="storages" if seed % 3 == 2 else "arena")
        plan_program(straight(Random(seed), SKEWED if skewed else SIZES), Prover(), options=options)
    assert over and max(over, key=lambda one: one[0])[0] <= SHARE
    assert max(above) <= 1 + SHARE


def ratios(monkeypatch: pytest.MonkeyPatch, largest: float) -> list[float]:
    """How many times what was said of them arenas take from here on, each time at most at 1,000 shapes drawn
    afresh, whose extents have binary logarithms up to `largest`.
    """
    judged, found = ArenaAssignment.judged, []

    def checked(
        self: ArenaAssignment, members: Sequence[Candidate], columns: CallColumns, *rest: Any
    ) -> tuple[Groups, float]:
        groups, spread = judged(self, members, columns, *rest)
        sizes, random = sizes_of(columns, self.profiles), Random(3)
        names = symbols_of(sizes)
        points = [tuple(round(2 ** random.uniform(0, largest)) for _ in names) for _ in range(1000)]
        table = SizeTable.at(self.bounds.grid(names, points), sizes).defined()
        if table is not None:
            found.append(CallTimeline(columns, table, self.profiles).spread(groups) / spread)
        return groups, spread

    monkeypatch.setattr(ArenaAssignment, "judged", checked)
    return found


@pytest.mark.parametrize("seed", [188, 287, 299])
def test_what_storages_take_is_said_of_skewed_shapes(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Among three symbols, one of which is a million where the others are one, it is up to 1.27."""
    found = ratios(monkeypatch, 20)
    bare = straight(Random(seed), (*SKEWED, 16 * K, 3 * M * K, K * N)).functions["main"]
    z = Var("z", TensorType(shape=(K,), dtype=FLOAT))
    known = {"n": Origin.DIMENSION, "m": Origin.DIMENSION, "k": Origin.DIMENSION}
    program = program_of(replace(bare, params=(*bare.params, z), symbols=known))
    plan_program(program, Prover(), options=PlanOptions(flavour="storages"))
    assert found and max(found) <= 1.0001


@pytest.mark.parametrize("seed", [12, 17, 61, 71, 118])
def test_arenas_keep_to_their_floor_where_sizes_are_mostly_rounding(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    found = ratios(monkeypatch, 6)
    plan_program(straight(Random(seed), (N * M, N, 3 * M, N * N, 2 * M * N)), Prover())
    assert found and max(found) <= 1.0001


@pytest.mark.parametrize("ratio", [(1.4,), (1.4, 0.2), (1.4, 3.0, 0.3)])
def test_a_ridge_that_no_start_lies_on_is_found(ratio: tuple[float, ...]) -> None:
    """The excess falls by a factor for every tenth that a symbol lies off the ratio to the first."""
    names = tuple("abcd")[: len(ratio) + 1]

    def excesses(points: Sequence[tuple[int, ...]]) -> tuple[Grid, Values]:
        extents = np.maximum(np.array(points, dtype=np.float64), 1.0)
        off = np.abs(np.log(extents[:, 1:] / extents[:, :1]) - np.log(ratio)).sum(axis=1)
        return Grid(names=names, points=tuple(points)), np.exp(-2 * off)

    found = worst_shapes(names, excesses, 1000, 0.5)
    assert found and worst_shapes(names, excesses, 1000, 2.0) == []


def test_sizes_are_compared_where_they_are_alike_however_they_grow() -> None:
    """One size is a square, the other a seventh: where they are alike no lattice of extents comes close."""

    def excesses(points: Sequence[tuple[int, ...]]) -> tuple[Grid, Values]:
        n, m = np.array(points, dtype=np.float64).T
        off = np.abs(np.log2(np.maximum(340 * n * n, 1) / np.maximum(m // 7, 1)))
        return Grid(names=("n", "m"), points=tuple(points)), np.where(m > 2**17, 1 - 8 * off, 0.0)

    assert worst_shapes(("n", "m"), excesses, 1000, 0.1) == []
    growths = Growth(math.log2(340), 2), Growth(-math.log2(7), 1)
    assert worst_shapes(("n", "m"), excesses, 1000, 0.1, growths=growths)


def test_nothing_is_looked_for_without_symbols() -> None:
    assert worst_shapes((), lambda points: None, 10, 0.0) == []


def test_what_starts_show_is_enough_at_once() -> None:
    looked_at: list[int] = []

    def excesses(points: Sequence[tuple[int, ...]]) -> tuple[Grid, Values]:
        looked_at.append(len(points))
        return Grid(names=("n", "m"), points=tuple(points)), np.array([p[0] / 8192 for p in points])

    found = worst_shapes(("n", "m"), excesses, 1000, 0.4, at_once=9)
    assert len(looked_at) == 1 and len(found) == 9
    assert all(shape["n"] > 0.4 * 8192 for shape in found)
    assert worst_shapes(("n", "m"), excesses, 1000, 1.5, at_once=9) and len(looked_at) > 2


def test_assignments_of_one_call_are_judged_at_the_same_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = timelines(monkeypatch)
    searched: list[CallColumns] = []

    def counted(self: ShapeSearch, timeline: CallTimeline, *rest: Any, **options: bool) -> WorstShapes:
        searched.append(timeline.columns)
        return worst(self, timeline, *rest, **options)

    worst = ShapeSearch.worst
    monkeypatch.setattr(ShapeSearch, "worst", counted)
    for seed in range(6):
        plan_program(straight(Random(seed)), Prover())
    assert len(set(searched)) < len(searched), "a call was searched again"
    assert len(set(made)) == len(made) > 0


def test_shapes_seen_part_by_part_give_the_same_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [straight(Random(seed)) for seed in range(3)]
    whole = [plan_program(program, Prover()) for program in programs]
    monkeypatch.setattr(shape_search, "CELLS_AT_ONCE", 1)
    made = timelines(monkeypatch)
    assert [plan_program(program, Prover()) for program in programs] == whole
    parts = [len(grid) for _, grid in made]
    assert max(parts) <= shape_search.FEWEST_SHAPES < sum(parts)
