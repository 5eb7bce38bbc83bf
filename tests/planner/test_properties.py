"""Properties of packing on random buffers with symbolic sizes, judged by brute force at random bindings."""

from __future__ import annotations

from itertools import combinations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.interference import interference, live_sums
from symalloc.planner.memory_plan import Arena, Buffer
from symalloc.planner.offsets import assemble
from symalloc.planner.stack import Stacking
from symalloc.program.types import ALIGNMENT
from symalloc.prover.domain import Domain
from symalloc.size.choice import maximum
from symalloc.size.condition import eq, gt, le
from symalloc.size.expr import constant, highest, round_up, symbol
from tests.planner.brute_stackings import chosen_by, live_ranges, together

N, M = symbol("n"), symbol("m")
SIZES = (
    round_up(4 * N, ALIGNMENT),
    256 * N,
    1024 * N,
    64 * M,
    round_up(2 * N * M, ALIGNMENT),
    maximum(round_up(4 * (N - 3), ALIGNMENT), 0),
    constant(4096),
    256 * N + 64 * M,
)
BINDINGS = [{"n": n, "m": m} for n in (0, 1, 3, 17, 192, 5000) for m in (0, 1, 64, 999)]
CONDITIONS = (le(N, 64), le(64 * N, 17 * M), eq(N % 3, 0), gt(N * M, 4096))
DOMAIN = Domain()


@st.composite
def problems(draw: st.DrawFn) -> tuple[Buffer, ...]:
    count = draw(st.integers(1, 8))
    return tuple(
        Buffer(id=i, name=f"b{i}", size=size, nbytes=size, live=draw(live_ranges(12)))
        for i, size in enumerate(draw(st.lists(st.sampled_from(SIZES), min_size=count, max_size=count)))
    )


def pack(found: tuple[Buffer, ...], seed: int = 0) -> Arena:
    """Any order is a right stacking; two of them by turns where the seed is odd."""
    random = Random(seed)
    first, second = (Stacking.of(random.sample(range(len(found)), len(found)), found) for _ in range(2))
    one, other = (assemble(found, stacking, DOMAIN) for stacking in (first, second))
    return chosen_by(CONDITIONS[seed % len(CONDITIONS)], one, other) if seed % 2 else other


def overlaps(arena: Arena, binding: dict[str, int]) -> bool:
    """Whether two buffers share a byte at one moment, byte ranges compared as sets of 64-byte blocks."""
    spans = [
        (p.buffer, p.offset.evaluate(binding), p.offset.evaluate(binding) + p.buffer.size.evaluate(binding))
        for p in arena.placements
    ]
    return any(
        together(a, b) and max(begin, start) < min(end, stop)
        for (a, begin, end), (b, start, stop) in combinations(spans, 2)
    )


@settings(max_examples=60)
@given(problems(), st.integers(0, 999))
def test_a_packing_is_disjoint_inside_its_arena_and_never_below_the_floor(
    found: tuple[Buffer, ...], seed: int
) -> None:
    arena = pack(found, seed)
    sums = live_sums(found)
    for binding in BINDINGS:
        assert not overlaps(arena, binding)
        size = arena.size.evaluate(binding)
        tops = [p.offset.evaluate(binding) + p.buffer.size.evaluate(binding) for p in arena.placements]
        assert max(tops) == size, "the arena ends where the highest buffer ends"
        assert all(p.offset.evaluate(binding) % ALIGNMENT == 0 for p in arena.placements)
        assert highest(sums, binding) <= size


@settings(max_examples=40)
@given(problems())
def test_interference_is_what_comparing_all_pairs_gives(found: tuple[Buffer, ...]) -> None:
    neighbours = interference(found)
    for a, b in combinations(found, 2):
        assert (b.id in neighbours[a.id]) == (a.id in neighbours[b.id]) == together(a, b)
