"""Offsets, their alignment, how many distinct ones and how many alternatives there are; whole storages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from symalloc.planner import offsets as module
from symalloc.planner.check.validate import validate
from symalloc.planner.memory_plan import Arena, Buffer, Plan
from symalloc.planner.offsets import Alternatives, Dominance, assemble, offsets, storage
from symalloc.planner.stack import Stacking
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.choice import maximum
from symalloc.size.expr import constant, round_up, symbol
from tests.planner.brute_stackings import buffer

N, M = symbol("n"), symbol("m")
PROVER, DOMAIN = Prover(), Domain()


def laid_out(buffers: Sequence[Buffer], *order: int) -> Arena:
    arena = assemble(buffers, Stacking.of(order, buffers), DOMAIN)
    assert_valid(arena)
    return arena


def assert_valid(arena: Arena) -> None:
    assert validate(Plan(function="f", arenas=(arena,)), DOMAIN, PROVER, machine=False) == ()


def texts(arena: Arena) -> list[str]:
    return [str(p.offset) for p in arena.placements]


def test_offsets_are_what_lies_below_and_dominated_alternatives_vanish() -> None:
    buffers = (
        buffer(0, 64 * N, (0, 9)),
        buffer(1, 128 * N, (0, 3)),
        buffer(2, 64 * N, (2, 9)),
        buffer(3, 64 * M, (5, 9)),
    )
    arena = laid_out(buffers, 0, 1, 2, 3)
    assert texts(arena) == ["0", "64*n", "192*n", "256*n"]
    assert str(arena.size) == "64*m + 256*n"


def test_alignment_is_rounded_up_only_where_it_must_be() -> None:
    two = (buffer(0, 4 * N, (0, 2), alignment=4), buffer(1, 64 * M, (1, 3)))
    assert texts(laid_out(two, 0, 1)) == ["0", str(round_up(4 * N, 64))]
    assert texts(laid_out(two, 1, 0)) == ["64*m", "0"]
    rows = ((constant(100), 4), (64 * N, 256), (constant(3), 1))  # each has its own
    three = [buffer(i, size, (0, 5), alignment=alignment) for i, (size, alignment) in enumerate(rows)]
    assert texts(laid_out(three, 0, 1, 2)) == ["0", "256", "64*n + 256"]
    assert texts(laid_out(three, 0, 2, 1)) == ["0", "256", "100"]


def test_an_empty_problem_has_an_empty_arena() -> None:
    arena = assemble((), Stacking(order=(), below=()), DOMAIN)
    assert (arena.size, arena.placements) == (0, ())


def test_a_storage_is_as_large_as_the_largest_in_it_at_each_binding() -> None:
    buffers = [buffer(i, size, (i, i + 1)) for i, size in enumerate((64 * N, 64 * M, 32 * N * 2))]
    found = storage(buffers, DOMAIN)
    assert_valid(found)
    assert str(found.size) == "max(64*m, 64*n)" and texts(found) == ["0"] * 3


# -- shared maxima ------------------------------------------------------------------------------------------


STEPS = tuple(f"n{i}" for i in range(8))
AT = tuple({name: (7 * i + 3 * k) % 11 * k for i, name in enumerate(STEPS)} for k in range(12))


def staircase() -> list[Buffer]:
    """Each of those that live long lies on the one before, and on one that is there when it ends."""
    found = []
    for i, name in enumerate(STEPS):
        long, short = round_up(32 * symbol(name), 64), round_up(4 * symbol(name) * symbol(STEPS[i - 1]), 64)
        found.append(buffer(2 * i, short, (20 + 2 * i, 22 + 2 * i)))
        found.append(buffer(2 * i + 1, long, (i, 21 + 2 * i)))
    return found


def values(placed: list[Alternatives]) -> list[list[int]]:
    return [[maximum(*one).evaluate(binding) for one in placed] for binding in AT]


def placed(buffers: list[Buffer]) -> list[Alternatives]:
    order = sorted(range(len(buffers)), key=lambda i: (i % 2, i))
    return offsets(buffers, Stacking.of(order, buffers), Dominance(Domain(), STEPS))


def test_shared_maxima_have_the_values_of_flat_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = staircase()
    monkeypatch.setattr(module, "LONG", 4)
    nested = placed(buffers)
    monkeypatch.setattr(module, "LONGEST", 1)  # what is more than this is laid out flat
    flat = placed(buffers)
    assert values(nested) == values(flat)
    assert max(len(one) for one in nested) < max(len(one) for one in flat)
    assert sum(len(e.key) for one in nested for e in one) < sum(len(e.key) for one in flat for e in one)


def test_a_shared_maximum_shows_that_it_is_aligned() -> None:
    longest = max(placed(staircase()), key=lambda one: sum(len(e.key) for e in one))
    assert all(coefficient % 64 == 0 for e in longest for coefficient in e.terms.values())
