"""Grouping tensors one by one: in C++ as in Python; what is passed over without a trial would have failed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from symalloc.planner.buffers import arena_attempts, call_timeline, first_fit
from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.buffers.native_arenas import FitStart
from symalloc.planner.buffers.native_timeline import NativeTimeline
from symalloc.planner.plan_functions import plan_program
from symalloc.prover.prover import Prover
from tests.planner.buffers.test_worst_shapes import straight
from tests.planner.random_programs import random_program
from tests.pool.library import need_native
from tests.scale import tries


def test_the_library_groups_as_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    need_native()
    several = 0
    natively = first_fit.fit_natively

    def checked(
        native: NativeTimeline, memory: CallTimeline, start: FitStart, order: Sequence[int], *most: int
    ) -> list[list[int]] | None:
        nonlocal several
        found = natively(native, memory, start, order, *most)
        assert found == first_fit._FirstFit(memory, start).fitted(order)
        several += found is not None and len(found) > len(start.groups) + 1
        return found

    monkeypatch.setattr(first_fit, "fit_natively", checked)
    for seed in range(tries(12, 300)):
        plan_program(random_program(seed), Prover())
        plan_program(straight(Random(seed)), Prover())
    assert several > 10


def test_arenas_that_are_not_tried_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_over = 0
    fitting = first_fit._FirstFit
    full, fit = fitting.full, first_fit.first_fit

    def counted(self: first_fit._FirstFit, group: first_fit._Group, i: int) -> bool:
        nonlocal passed_over
        found = full(self, group, i)
        passed_over += found
        return found

    def checked(
        memory: CallTimeline, planned: Sequence[int], results: Sequence[int], hosts: Sequence[int]
    ) -> list[list[int]] | None:
        with monkeypatch.context() as patched:
            patched.setattr(fitting, "full", lambda *_: False)
            expected = fit(memory, planned, results, hosts)
        assert fit(memory, planned, results, hosts) == expected
        return expected

    monkeypatch.setattr(call_timeline, "native_timeline", lambda *_, **__: None)
    monkeypatch.setattr(fitting, "full", counted)
    monkeypatch.setattr(arena_attempts, "first_fit", checked)
    monkeypatch.setattr(arena_attempts, "few_arenas", lambda *_: None)
    monkeypatch.setattr(arena_attempts, "early_arena", lambda *_: None)
    for seed in range(tries(12, 300)):
        plan_program(random_program(seed), Prover())
        plan_program(straight(Random(seed)), Prover())
    assert passed_over > 100
