"""Whole storages: what shares one is never live at once, and no call takes more for it than without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from symalloc.planner.buffers import arena_attempts
from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.buffers.storage_slots import storage_slots
from symalloc.planner.plan_functions import plan_program
from symalloc.planner.planner_options import PlanOptions
from symalloc.program.ir import Block, CallFunction, Instruction, Var
from symalloc.prover.prover import Prover
from symalloc.size.expr import constant
from tests.planner.buffers.test_arena_assignment import WIDE, arenas, chain
from tests.planner.buffers.test_candidates import VOID, X, alloc, branch, function, kernel, split
from tests.planner.random_programs import random_program
from tests.program.build import program_of
from tests.scale import tries

STORAGES = PlanOptions(flavour="storages")


def test_a_chain_needs_two_storages() -> None:
    _, body = chain(*"abcdefg")
    found, _ = split(*body, options=STORAGES)
    assert sorted(map(sorted, arenas(found).values())) == [["a", "c", "e", "g"], ["b", "d", "f"]]


def test_a_small_one_does_not_take_the_only_place_of_a_large_one() -> None:
    small, large, last = alloc("small", constant(16)), alloc("large", 64 * WIDE), alloc("last", 64 * WIDE)
    body = (small, kernel(X, small.var), large, kernel(small.var, large.var), last, kernel(X, last.var))
    found, _ = split(*body, options=STORAGES)
    assert found["large"].arena == found["last"].arena != found["small"].arena


def test_no_branch_takes_the_storages_of_the_other() -> None:
    """The side with the small tensors would hold both of the large ones."""

    def side(mark: str, scale: int) -> tuple[Instruction, ...]:
        first, second = (alloc(f"{mark}{number}", scale * WIDE) for number in range(2))
        return first, kernel(X, first.var), second, kernel(first.var, second.var)

    found, _ = split(branch(side("small", 1), side("large", 64), (X, X)), options=STORAGES)
    assert len(arenas(found)) == 4


def test_no_side_of_an_if_holds_what_a_callee_of_the_other_works_in() -> None:
    large, small = alloc("large", 64 * WIDE), alloc("small", WIDE)
    callee = function(large, kernel(X, large.var), name="inner")
    call = CallFunction(var=Var("_", VOID), name="inner", arguments=(X,))
    sides = branch((call,), (), (X, X))
    body = replace(sides, otherwise=Block(instructions=(small, kernel(X, small.var)), result=X))
    plans = plan_program(program_of(function(body), callee), Prover(), options=STORAGES)
    main = plans["main"].arenas
    assert sorted([p.buffer.name for p in arena.placements] for arena in main) == [["inner()"], ["small"]]


def test_storages_that_take_more_than_the_floor_say_so() -> None:
    """Three of rising size, then a large one with each: no two of these can share, whatever the order."""
    sizes = (1, 2, 3)
    body: list[Instruction] = []
    for number, size in enumerate(sizes):
        first, second = alloc(f"a{number}", size * WIDE), alloc(f"b{number}", (4 - size) * WIDE)
        body += [first, kernel(X, first.var), second, kernel(first.var, second.var)]
    crossing = alloc("c", constant(64))
    body = [crossing, *body, kernel(X, crossing.var)]
    (plan,) = plan_program(program_of(function(*body)), Prover(), options=STORAGES).values()
    assert all(p.offset == 0 for arena in plan.arenas for p in arena.placements)
    assert all(rung.kind == "storages" and rung.ratio > 1 for rung in plan.rungs)


@pytest.mark.parametrize("graphs", [False, True])
def test_every_tensor_lies_in_one_storage_and_none_beside_another_that_is_live(
    graphs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = 0

    def checked(memory: CallTimeline, tensors: Sequence[int]) -> list[list[int]]:
        nonlocal shared
        found = storage_slots(memory, tensors)
        assert sorted(i for slot in found for i in slot) == sorted(tensors)
        for slot in found:
            live = [position for i in slot for one in memory.tenants[i].live for position in range(*one)]
            assert len(live) == len(set(live)) and memory.possible(slot)
            shared += len(slot) - 1
        return found

    monkeypatch.setattr(arena_attempts, "storage_slots", checked)
    for seed in range(tries(12, 200)):
        plan_program(random_program(seed), Prover(), options=replace(STORAGES, graphs=graphs))
    assert shared > 20
