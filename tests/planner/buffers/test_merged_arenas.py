"""Joined arenas: fewer, of the same tensors, and no call takes more for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from symalloc.planner.buffers import arena_assignment
from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.buffers.merged_arenas import merged_arenas
from symalloc.planner.plan_functions import plan_program
from symalloc.prover.prover import Prover
from tests.planner.random_programs import random_program
from tests.scale import tries

EXACT = 1e-9


def test_joined_arenas_take_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = 0

    def checked(memory: CallTimeline, groups: Sequence[Sequence[int]]) -> list[list[int]]:
        nonlocal joined
        found = merged_arenas(memory, groups)
        assert sorted(i for group in found for i in group) == sorted(i for group in groups for i in group)
        assert memory.excess(found) <= max(memory.excess(groups), 0.0) + EXACT
        assert memory.spread(found) <= memory.spread(groups) + EXACT
        assert all(memory.possible(group) for group in found)
        joined += len(groups) - len(found)
        return found

    monkeypatch.setattr(arena_assignment, "merged_arenas", checked)
    for seed in range(tries(50, 300)):
        plan_program(random_program(seed), Prover())
    assert joined > 5
