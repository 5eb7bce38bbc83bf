"""Whole storages: every buffer at offset 0 of one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.check.validate import validate
from symalloc.planner.layout.storage_slots import storage_arenas
from symalloc.planner.memory_plan import Arena, Buffer, Plan
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.expr import Expr, constant, round_up, symbol

N, M = symbol("n"), symbol("m")
PROVER, DOMAIN = Prover(), Domain()
SIZES = (64 * N, 256 * N, 64 * M, round_up(4 * N * M, 64), constant(4096), constant(0))


def shared(buffers: tuple[Buffer, ...]) -> tuple[Arena, ...]:
    return storage_arenas(buffers, DOMAIN, PROVER)


def buffer(id_: int, size: Expr, begin: int, end: int) -> Buffer:
    return Buffer(id=id_, name=f"t{id_}", size=size, nbytes=size, live=((begin, end),))


def test_a_chain_needs_two_storages() -> None:
    found = shared(tuple(buffer(i, 64 * N, i, i + 2) for i in range(7)))
    assert sorted((str(a.size), len(a.placements)) for a in found) == [("64*n", 3), ("64*n", 4)]


def test_a_storage_is_as_large_as_the_largest_in_it_at_each_binding() -> None:
    (only,) = shared((buffer(0, 64 * N, 0, 1), buffer(1, 64 * M, 1, 2), buffer(2, 32 * N * 2, 2, 3)))
    assert str(only.size) == "max(64*m, 64*n)"


def test_a_small_one_does_not_take_the_only_place_of_a_large_one() -> None:
    found = shared((buffer(0, constant(64), 0, 2), buffer(1, 4096 * N, 1, 3), buffer(2, 4096 * N, 3, 5)))
    assert sorted(str(a.size) for a in found) == ["4096*n", "64"]


buffers = st.lists(
    st.tuples(st.sampled_from(SIZES), st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=10
).map(
    lambda rows: tuple(buffer(i, size, begin, begin + length) for i, (size, begin, length) in enumerate(rows))
)


@settings(max_examples=60)
@given(buffers)
def test_storages_validate_and_hold_every_buffer_once(found: tuple[Buffer, ...]) -> None:
    arenas = shared(found)
    assert validate(Plan(function="f", arenas=arenas), DOMAIN, PROVER, machine=False) == ()
    assert sorted(p.buffer.id for a in arenas for p in a.placements) == [b.id for b in found]
    assert all(p.offset == 0 for a in arenas for p in a.placements)
