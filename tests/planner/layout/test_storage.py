"""A whole storage: every buffer at offset 0 of it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.check.validate import validate
from symalloc.planner.layout.storage import storage
from symalloc.planner.memory_plan import Buffer, Plan
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.expr import Expr, constant, round_up, symbol

N, M = symbol("n"), symbol("m")
PROVER, DOMAIN = Prover(), Domain()
SIZES = (64 * N, 256 * N, 64 * M, round_up(4 * N * M, 64), constant(4096), constant(0))


def buffer(id_: int, size: Expr, begin: int, end: int) -> Buffer:
    return Buffer(id=id_, name=f"t{id_}", size=size, nbytes=size, live=((begin, end),))


def test_it_is_as_large_as_the_largest_in_it_at_each_binding() -> None:
    found = storage(
        (buffer(0, 64 * N, 0, 1), buffer(1, 64 * M, 1, 2), buffer(2, 32 * N * 2, 2, 3)), DOMAIN, PROVER
    )
    assert str(found.size) == "max(64*m, 64*n)" and not found.raised


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(SIZES), st.integers(1, 5)), min_size=1, max_size=10))
def test_it_holds_every_buffer_at_offset_0_and_validates(rows: list[tuple[Expr, int]]) -> None:
    ends = [sum(length for _, length in rows[: i + 1]) for i in range(len(rows))]
    buffers = [
        buffer(i, size, end - length, end)
        for i, ((size, length), end) in enumerate(zip(rows, ends, strict=True))
    ]
    found = storage(buffers, DOMAIN, PROVER)
    assert validate(Plan(function="f", arenas=(found,)), DOMAIN, PROVER, machine=False) == ()
    assert [(p.buffer, p.offset) for p in found.placements] == [(b, 0) for b in buffers]
