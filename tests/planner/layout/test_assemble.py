"""Offsets, their alignment, regimes, and how many distinct ones there are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from symalloc.planner.check.validate import validate
from symalloc.planner.layout.assemble import assemble
from symalloc.planner.memory_plan import Arena, Buffer, Plan
from symalloc.planner.search.stacking import Stacking
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.choice import select
from symalloc.size.condition import eq, gt, le
from symalloc.size.expr import Expr, constant, mod, round_up, symbol

N, M = symbol("n"), symbol("m")
PROVER, DOMAIN = Prover(), Domain()


def buffer(id_: int, size: Expr, *live: tuple[int, int], alignment: int = 64) -> Buffer:
    return Buffer(id=id_, name=f"t{id_}", size=size, nbytes=size, live=live, alignment=alignment)


def stacked(buffers: Sequence[Buffer], *order: int) -> Stacking:
    return Stacking.of(order, buffers)


def laid_out(buffers: Sequence[Buffer], *order: int, domain: Domain = DOMAIN) -> Arena:
    arena = assemble(buffers, [(None, stacked(buffers, *order))], domain, PROVER)
    assert_valid(arena, domain)
    return arena


def assert_valid(arena: Arena, domain: Domain = DOMAIN) -> None:
    assert validate(Plan(function="f", arenas=(arena,)), domain, PROVER, machine=False) == ()


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
    buffers = (
        buffer(0, 4 * N, (0, 2), alignment=4),
        buffer(1, 64 * M, (1, 3)),
    )
    assert texts(laid_out(buffers, 0, 1)) == ["0", str(round_up(4 * N, 64))]
    assert texts(laid_out(buffers, 1, 0)) == ["64*m", "0"]
    sixteenths = Domain(assumptions=(eq(mod(N, 16), 0),))
    assert texts(laid_out(buffers, 0, 1, domain=sixteenths)) == ["0", "4*n"]


def test_each_buffer_has_its_own_alignment() -> None:
    buffers = (
        buffer(0, constant(100), (0, 5), alignment=4),
        buffer(1, 64 * N, (0, 5), alignment=256),
        buffer(2, constant(3), (0, 5), alignment=1),
    )
    assert texts(laid_out(buffers, 0, 1, 2)) == ["0", "256", "64*n + 256"]
    assert texts(laid_out(buffers, 0, 2, 1)) == ["0", "256", "100"]


def test_regimes_become_choices_each_simplified_where_it_holds() -> None:
    buffers = (buffer(0, 64 * N, (0, 2)), buffer(1, 64 * M, (1, 3)), buffer(2, constant(4096), (2, 4)))
    regimes = [(le(N, 64), stacked(buffers, 1, 0, 2)), (None, stacked(buffers, 0, 2, 1))]
    arena = assemble(buffers, regimes, DOMAIN, PROVER)
    assert_valid(arena)
    offsets = [p.offset for p in arena.placements]
    assert offsets[0] == select(le(N, 64), 64 * M, 0)
    assert offsets[1] == select(le(N, 64), 0, 64 * N), "no maximum with 4096 is left"


def test_three_regimes_each_take_what_the_ones_before_leave() -> None:
    buffers = (buffer(0, 64 * N, (0, 2)), buffer(1, 64 * M, (1, 3)))
    low, high = stacked(buffers, 0, 1), stacked(buffers, 1, 0)
    arena = assemble(buffers, [(le(N, 4), low), (gt(M, N), high), (None, low)], DOMAIN, PROVER)
    assert_valid(arena)
    first = arena.placements[0].offset
    assert [first.evaluate({"n": n, "m": 8}) for n in (4, 5, 8)] == [0, 512, 0]


def test_a_hole_between_regimes_is_refused() -> None:
    buffers = (buffer(0, 64 * N, (0, 2)),)
    with pytest.raises(ValueError, match="must hold for every shape that is left"):
        assemble(buffers, [(le(N, 64), stacked(buffers, 0))], DOMAIN, PROVER)
    with pytest.raises(ValueError, match="last regime"):
        assemble(buffers, [], DOMAIN, PROVER)


def test_an_offset_is_raised_to_one_in_use_where_there_is_room() -> None:
    """t3 lies on t2 alone, at 64*n; the room up to the arena's end lets it start at 128*n, where t1 is."""
    buffers = (
        buffer(0, 128 * N, (0, 4)),
        buffer(1, 256 * N, (2, 4)),
        buffer(2, 64 * N, (6, 8)),
        buffer(3, 64 * N, (6, 8)),
    )
    arena = laid_out(buffers, 0, 1, 2, 3)
    assert texts(arena) == ["0", "128*n", "0", "128*n"]
    assert str(arena.size) == "384*n"


def test_no_offset_is_raised_into_what_lies_above_or_past_the_end() -> None:
    above = (
        buffer(0, 128 * N, (0, 2)),
        buffer(1, 64 * N, (0, 2)),
        buffer(2, 64 * N, (3, 5)),
        buffer(3, 64 * N, (3, 5)),
        buffer(4, 64 * N, (3, 5)),
    )
    arena = laid_out(above, 0, 1, 2, 3, 4)
    assert str(arena.size) == "192*n"
    assert texts(arena)[2:] == ["0", "64*n", "128*n"]


def test_constants_are_left_alone() -> None:
    buffers = tuple(buffer(i, constant(64), (0, 2)) for i in range(4))
    assert texts(laid_out(buffers, 0, 1, 2, 3)) == ["0", "64", "128", "192"]


def test_an_empty_problem_has_an_empty_arena() -> None:
    arena = assemble((), [(None, Stacking(order=(), below=()))], DOMAIN, PROVER)
    assert (arena.size, arena.placements) == (0, ())
