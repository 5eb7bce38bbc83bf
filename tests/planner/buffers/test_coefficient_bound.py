"""What is seen from coefficients holds at every shape."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from symalloc.planner.buffers import arena_assignment, arena_attempts
from symalloc.planner.buffers.call_columns import CallColumns
from symalloc.planner.buffers.call_timeline import CallTimeline, sizes_of
from symalloc.planner.buffers.coefficient_bound import CoefficientBound
from symalloc.planner.buffers.sample_shapes import SizeTable, symbols_of
from symalloc.planner.grid import Grid
from symalloc.planner.plan_functions import plan_program
from symalloc.program.ir import Instruction, NotUnderstood, Var
from symalloc.program.types import DType, ScalarType
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.expr import constant
from tests.planner.buffers.test_candidates import VOID, N, S, X, alloc, function, kernel
from tests.planner.buffers.test_worst_shapes import drawn, straight
from tests.planner.random_programs import random_program
from tests.program.build import program_of
from tests.scale import tries


def grouped(columns: CallColumns, random: Random) -> list[list[int]]:
    """A random assignment to arenas; what cannot share one is left out."""
    count = random.randint(1, len(columns.tenants))
    groups: list[list[int]] = [[] for _ in range(count)]
    for i in range(len(columns.tenants)):
        groups[random.randrange(count)].append(i)
    return [group for group in groups if group and columns.possible(group)]


def excess_at(columns: CallColumns, groups: Sequence[Sequence[int]], random: Random) -> float:
    sizes = sizes_of(columns, {})
    names = symbols_of(sizes)
    points = [(0,) * len(names), (1,) * len(names), *drawn(names, random)]
    table = SizeTable.at(Grid(names=names, points=tuple(points)), sizes).defined()
    return 0.0 if table is None else CallTimeline(columns, table, {}).excess(groups)


def test_no_call_exceeds_its_limit_where_that_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    random, seen, unseen = Random(1), 0, 0

    class Checked(CoefficientBound):
        def __init__(self, columns: CallColumns, domain: Domain) -> None:
            super().__init__(columns, domain)
            nonlocal seen, unseen
            for groups in (
                [grouped(columns, random) for _ in range(8)] if self.timeline and columns.tenants else ()
            ):
                over = excess_at(columns, groups, random)
                assert over < 1e-9 or not self.keeps(groups)
                seen += self.keeps(groups)
                unseen += over > 0

    monkeypatch.setattr(arena_assignment, "CoefficientBound", Checked)
    for seed in range(tries(7, 300)):
        plan_program(random_program(seed), Prover())
        plan_program(straight(Random(seed)), Prover())
    assert seen > 10 and unseen > 10


def test_arenas_that_are_made_by_coefficients_keep_limit_and_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    made, random = 0, Random(1)

    class Checked(CoefficientBound):
        def tight(self, groups: Sequence[Sequence[int]]) -> bool:
            nonlocal made
            found = super().tight(groups)
            assert found and self.keeps(groups) and excess_at(self.columns, groups, random) < 1e-9
            made += len(groups) < len(self.columns.tenants)
            return found

    monkeypatch.setattr(arena_assignment, "CoefficientBound", Checked)
    monkeypatch.setattr(arena_assignment, "MANY_SYMBOLS", 0)
    monkeypatch.setattr(arena_attempts, "few_arenas", lambda *_: None)
    monkeypatch.setattr(arena_attempts, "relieved", lambda *_: None)
    for seed in range(tries(10, 300)):
        plan_program(straight(Random(seed)), Prover())
    assert made > 5


def keep(tensor: Var) -> Instruction:
    return NotUnderstood(var=Var("o", VOID), what="closure", reads=(tensor,))


def test_a_scalar_that_may_be_negative_takes_bytes_off_the_limit() -> None:
    """`late` takes 64*n + 64*s + 64 bytes, few at s = -n: `wide` held beside `kept` is too much."""
    wide, small = alloc("wide", N * constant(16)), alloc("small", constant(16))
    kept, late = alloc("kept", N * constant(32)), alloc("late", (N + S + 1) * constant(16))
    body = (
        *(wide, kernel(X, wide.var), small, kernel(wide.var, small.var)),
        *(kept, keep(kept.var), kernel(small.var, kept.var), late, keep(late.var)),
    )
    scalar = Var("s", ScalarType(dtype=DType("int64", 64), value=S))
    plan = plan_program(program_of(function(*body, params=(X, scalar))), Prover())["main"]
    assert [[p.buffer.name for p in arena.placements] for arena in plan.arenas] == [["wide"], ["small"]]
