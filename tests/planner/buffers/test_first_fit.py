"""Grouping tensors one by one: what is passed over without a trial would have failed it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from symalloc.planner.buffers import arena_attempts, first_fit
from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.plan_functions import plan_program
from symalloc.prover.prover import Prover
from tests.planner.buffers.test_worst_shapes import straight
from tests.planner.random_programs import random_program
from tests.scale import tries


def test_arenas_that_are_not_tried_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_over = 0
    fitting = first_fit._FirstFit
    full, fit = fitting.full, first_fit.first_fit

    def counted(self: first_fit._FirstFit, groups: Sequence[first_fit._Group], i: int) -> Sequence[bool]:
        nonlocal passed_over
        found = full(self, groups, i)
        passed_over += sum(found)
        return found

    def checked(
        memory: CallTimeline, planned: Sequence[int], results: Sequence[int], hosts: Sequence[int]
    ) -> list[list[int]] | None:
        with monkeypatch.context() as patched:
            patched.setattr(fitting, "full", lambda _self, groups, _: [False] * len(groups))
            expected = fit(memory, planned, results, hosts)
        assert fit(memory, planned, results, hosts) == expected
        return expected

    monkeypatch.setattr(fitting, "full", counted)
    monkeypatch.setattr(arena_attempts, "first_fit", checked)
    monkeypatch.setattr(arena_attempts, "few_arenas", lambda *_: None)
    monkeypatch.setattr(arena_attempts, "early_arena", lambda *_: None)
    for seed in range(tries(12, 300)):
        plan_program(random_program(seed), Prover())
        plan_program(straight(Random(seed)), Prover())
    assert passed_over > 100
