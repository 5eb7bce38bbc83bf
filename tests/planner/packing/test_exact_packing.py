from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.memory_plan import Buffer
from symalloc.planner.packing.exact_packing import (
    ExactPacking,
    SizedBuffers,
    align_up,
    pack_exactly,
    pack_greedily,
)
from tests.planner import brute_stackings
from tests.planner.brute_stackings import all_heights, together

Problem = tuple[Buffer, ...]


buffer = partial(brute_stackings.buffer, alignment=1)


def bytes_of(b: Buffer) -> int:
    return b.size.evaluate({})


@st.composite
def problems(draw: st.DrawFn, most: int = 6) -> Problem:
    """Buffers with one or two intervals, some of no size, some aligned."""
    ends = st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2))
    alignments = draw(st.sampled_from(([1], [4], [1, 4])))
    found = []
    for id_ in range(draw(st.integers(0, most))):
        begin, length, gap, more = draw(ends)
        second = ((begin + length + gap + 1, begin + length + gap + 1 + more),) if more else ()
        size, alignment = draw(st.integers(0, 12)), draw(st.sampled_from(alignments))
        found.append(buffer(id_, size, (begin, begin + length), *second, alignment=alignment))
    return tuple(found)


def assert_sound(problem: Problem, offsets: Mapping[int, int] | Sequence[int]) -> None:
    """No byte of memory belongs to two buffers at one position, and every offset is aligned."""
    owners: dict[tuple[int, int], int] = {}
    for b in problem:
        at = offsets[b.id]
        assert at >= 0 and at % b.alignment == 0
        for begin, end in b.live:
            for cell in product(range(begin, end), range(at, at + bytes_of(b))):
                assert owners.setdefault(cell, b.id) == b.id


def lowest(problem: Problem) -> int:
    """The least height there is: some order in which each buffer is laid on those before it reaches it."""
    return min(all_heights(problem, [{}]))[0]


def perfect(seed: int, count: int, positions: int, height: int) -> Problem:
    """A rectangle of `positions` by `height` cut into `count` buffers without waste, and shuffled."""
    chance = Random(seed)
    pieces = [(0, positions, 0, height)]
    while len(pieces) < count:
        begin, end, low, high = piece = max(
            pieces, key=lambda p: (p[1] - p[0]) * (p[3] - p[2]) * chance.random()
        )
        pieces.remove(piece)
        if chance.random() < 0.6 and high - low > 1:
            cut = chance.randrange(low + 1, high)
            pieces += [(begin, end, low, cut), (begin, end, cut, high)]
        elif end - begin > 1:
            cut = chance.randrange(begin + 1, end)
            pieces += [(begin, cut, low, high), (cut, end, low, high)]
        else:
            pieces.append(piece)
    chance.shuffle(pieces)
    return tuple(buffer(i, high - low, (begin, end)) for i, (begin, end, low, high) in enumerate(pieces))


def packed(problem: Problem, *, capacity: int | None, **options: int) -> ExactPacking:
    """The answer, from buffers that lie one on the other."""
    start, offsets = 0, []
    for b in problem:
        start = align_up(start, b.alignment)
        offsets.append(start)
        start += bytes_of(b)
    return pack_exactly(problem, offsets, capacity=capacity, **options)


@settings(deadline=None)
@given(problems(), st.integers(0, 40))
def test_a_capacity_is_kept_or_proved_too_small(problem: Problem, capacity: int) -> None:
    found = packed(problem, capacity=capacity)
    assert found.optimal
    assert (found.offsets is not None) == (lowest(problem) <= capacity)
    if found.offsets is None:
        assert capacity < found.height <= lowest(problem)
    else:
        assert_sound(problem, found.offsets)
        assert found.height <= capacity


@settings(deadline=None)
@given(problems(most=5), st.data())
def test_what_is_fixed_stays_and_the_rest_is_packed_as_low_as_can_be(
    problem: Problem, data: st.DataObject
) -> None:
    """Against all offsets up to the height of a pile of everything."""
    sizes = [bytes_of(b) for b in problem]
    room = sum(size + b.alignment for size, b in zip(sizes, problem, strict=True)) + 8
    laid = {b.id: b.alignment * data.draw(st.integers(0, 3)) for b in problem if data.draw(st.booleans())}

    def apart(i: int, at: Mapping[int, int]) -> bool:
        others = [j for j in at if j != i and sizes[i] and sizes[j] and together(problem[i], problem[j])]
        return all(at[j] + sizes[j] <= at[i] or at[i] + sizes[i] <= at[j] for j in others)

    def least(at: dict[int, int], left: list[int], most: int) -> int:
        if not left:
            return max((at[i] + size for i, size in enumerate(sizes)), default=0)
        i, *rest = left
        for offset in range(0, most - sizes[i], problem[i].alignment):
            if apart(i, at | {i: offset}):
                most = min(most, least(at | {i: offset}, rest, most))
        return most

    if not all(apart(i, laid) for i in laid):
        return
    given = SizedBuffers.of(problem, laid)
    start = pack_greedily(given, 0, work=0, seed=0).tolist()
    found = pack_exactly(problem, start, capacity=None, fixed=laid)
    assert found.optimal and found.offsets is not None
    for offsets in (start, found.offsets):
        assert_sound(problem, offsets)
        assert {i: offsets[i] for i in laid} == laid
    assert given.floor <= found.height <= given.height(np.array(start, dtype=np.int64))
    if sum(sizes) < 24:
        assert found.height == least(laid, [b.id for b in problem if b.id not in laid], room + 24)
    again = pack_exactly(problem, start, capacity=found.height - 1, fixed=laid)
    assert again.optimal and again.offsets is None


@pytest.mark.parametrize("seed", range(8))
def test_rectangles_cut_without_waste_are_put_together_again(seed: int) -> None:
    problem = perfect(seed, count=60, positions=30, height=256)
    found = packed(problem, capacity=256)
    assert found.offsets is not None and found.height <= 256
    assert_sound(problem, found.offsets)


def test_a_capacity_below_the_floor_is_answered_without_search() -> None:
    problem = perfect(0, count=40, positions=30, height=100)
    found = packed(problem, capacity=99)
    assert (found.offsets, found.height, found.optimal, found.steps) == (None, 100, True, 0)


def test_the_same_seed_and_steps_give_the_same_answer() -> None:
    problem = perfect(5, count=200, positions=90, height=1024)
    one, two = (packed(problem, capacity=None, seed=7, steps=1500) for _ in "ab")
    assert one == two
    assert one.steps < 4000


def test_a_limit_that_is_too_small_is_not_taken_for_a_proof() -> None:
    problem = perfect(5, count=200, positions=90, height=1024)
    for steps in (0, 1):
        found = packed(problem, capacity=1024, steps=steps)
        assert (found.offsets, found.height, found.optimal) == (None, 1024, False)


def test_problems_deeper_than_the_stack_of_python() -> None:
    """A staircase of one component: each buffer lies on the one before."""
    count = 5000
    problem = tuple(buffer(i, 1 + i % 3, (i, i + 2)) for i in range(count))
    found = packed(problem, capacity=5)
    assert found.offsets is not None and found.height <= 5


def test_an_interrupt_gets_through() -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    problem = perfect(11, count=400, positions=200, height=1 << 20)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            packed(problem, capacity=1 << 20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
