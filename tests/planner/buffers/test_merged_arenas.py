"""Joined arenas: fewer, of the same tensors, and no call takes more for it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from symalloc.planner.buffers import arena_assignment, merged_arenas
from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.buffers.native_arenas import MergeStart
from symalloc.planner.plan_functions import plan_program
from symalloc.prover.prover import Prover
from tests.planner.buffers.test_worst_shapes import straight
from tests.planner.random_programs import random_program
from tests.pool.library import need_native
from tests.scale import tries

EXACT = 1e-9


@pytest.mark.parametrize("many", [merged_arenas.MANY, 1])
def test_joined_arenas_take_no_more(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pair by pair, and neighbours first, as where there are many, at most five in one."""
    joined = 0
    join = merged_arenas.merged_arenas

    def checked(memory: CallTimeline, groups: Sequence[Sequence[int]]) -> list[list[int]]:
        nonlocal joined
        found = join(memory, groups)
        assert sorted(i for group in found for i in group) == sorted(i for group in groups for i in group)
        assert memory.excess(found) <= max(memory.excess(groups), 0.0) + EXACT
        assert memory.spread(found) <= memory.spread(groups) + EXACT
        assert all(memory.possible(group) for group in found)
        joined += len(groups) - len(found)
        return found

    monkeypatch.setattr(arena_assignment, "merged_arenas", checked)
    monkeypatch.setattr(merged_arenas, "MANY", many)
    monkeypatch.setattr(merged_arenas, "MOST_TOGETHER", 5)
    for seed in range(tries(25, 300)):
        plan_program(random_program(seed), Prover())
    assert joined > 2


@pytest.mark.parametrize("many", [merged_arenas.MANY, 1])
def test_the_library_joins_what_python_does(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    need_native()
    joined = 0
    merge = merged_arenas._merged

    def checked(memory: CallTimeline, start: MergeStart) -> list[list[int]]:
        nonlocal joined
        found = merge(memory, start)
        assert found == merged_arenas._Merging(memory, start).run()
        joined += len(start.groups) - len(found)
        return found

    monkeypatch.setattr(merged_arenas, "_merged", checked)
    monkeypatch.setattr(merged_arenas, "MANY", many)
    monkeypatch.setattr(merged_arenas, "MOST_TOGETHER", 5)
    for seed in range(tries(25, 300)):
        plan_program(random_program(seed), Prover())
        plan_program(straight(Random(seed)), Prover())
    assert joined > 10
