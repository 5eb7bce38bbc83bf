from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from symalloc.plan.exact import StaticBuffer, pack_exactly
from symalloc.plan.exact_problem import align_up

Problem = tuple[StaticBuffer, ...]


@st.composite
def problems(draw: st.DrawFn, most: int = 6) -> Problem:
    """Buffers with one or two intervals, some of no size, some aligned."""
    ends = st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2))
    alignments = draw(st.sampled_from(([1], [4], [1, 4])))
    found = []
    for id_ in range(draw(st.integers(0, most))):
        begin, length, gap, more = draw(ends)
        second = ((begin + length + gap + 1, begin + length + gap + 1 + more),) if more else ()
        found.append(
            StaticBuffer(
                id=id_,
                size=draw(st.integers(0, 12)),
                live=((begin, begin + length), *second),
                alignment=draw(st.sampled_from(alignments)),
            )
        )
    return tuple(found)


def positions(buffer: StaticBuffer) -> set[int]:
    return {p for begin, end in buffer.live for p in range(begin, end)}


def pairs(problem: Problem) -> dict[int, frozenset[int]]:
    return {
        b.id: frozenset(o.id for o in problem if o is not b and positions(b) & positions(o)) for b in problem
    }


def assert_sound(problem: Problem, offsets: dict[int, int]) -> None:
    """No byte of memory belongs to two buffers at one position, and every offset is aligned."""
    owners: dict[tuple[int, int], int] = {}
    for b in problem:
        assert offsets[b.id] >= 0
        assert offsets[b.id] % b.alignment == 0
        for cell in ((p, y) for p in positions(b) for y in range(offsets[b.id], offsets[b.id] + b.size)):
            assert owners.setdefault(cell, b.id) == b.id


def lowest(problem: Problem) -> int:
    """The least height there is: some order in which each buffer is laid on those before it reaches it."""
    neighbours = pairs(problem)
    best = sum(align_up(b.size, b.alignment) for b in problem)
    for order in permutations(problem):
        tops: dict[int, int] = {}
        for b in order:
            below = max((tops[j] for j in neighbours[b.id] if j in tops), default=0)
            tops[b.id] = align_up(below, b.alignment) + b.size
        best = min(best, max(tops.values(), default=0))
    return best


@given(problems())
def test_a_packing_is_sound_and_says_its_height(problem: Problem) -> None:
    found = pack_exactly(problem, pairs(problem), capacity=None, seconds=10)
    assert found.offsets is not None
    assert_sound(problem, found.offsets)
    assert found.height == max((found.offsets[b.id] + b.size for b in problem), default=0)


@given(problems(most=5))
def test_what_is_called_optimal_is_the_lowest(problem: Problem) -> None:
    found = pack_exactly(problem, pairs(problem), capacity=None, seconds=10)
    assert found.height == lowest(problem) if found.optimal else found.height >= lowest(problem)
