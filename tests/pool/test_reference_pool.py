"""The reference pool, and the native core, which places every block where that does."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.native.native_functions import pool_functions
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import BoundsError, OutOfMemoryError, PoolUsageError
from symalloc.pool.pool_options import PoolOptions
from symalloc.pool.trace import Alloc, Free
from tests.pool.reference.reference_pool import ReferencePool
from tests.pool.steps import STEPS, Step, peak_live
from tests.pool.workloads import WORKLOADS, make_trace
from tests.scale import tries

KIB, MIB = 2**10, 2**20
SMALL = 2**26  # of a range
OPTIONS = st.builds(
    PoolOptions,
    soft_limit=st.sampled_from((None, Fraction(1), Fraction(11, 10), Fraction(3, 2), 0, 2 * MIB)),
    limit=st.sampled_from((None, None, 4 * MIB, 16 * MIB)),
    page=st.sampled_from((4 * KIB, 64 * KIB)),
    bin_capacity=st.sampled_from((0, 128 * KIB, 1024 * KIB)),
    capacity=st.just(SMALL),
)


def _rounded(nbytes: int) -> int:
    return max(-(-nbytes // 64) * 64, 64)


def _pages_of(live: dict[int, int], page: int) -> set[int]:
    return {p for a, n in live.items() for p in range(a // page, (a + _rounded(n) - 1) // page + 1)}


def _disjoint(live: dict[int, int]) -> bool:
    spans = sorted((a, a + _rounded(n)) for a, n in live.items())
    return all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def _run(pool: ReferencePool, steps: list[Step]) -> dict[int, int]:
    """Does `steps`, checking after each what must always hold; what is live at the end."""
    live: dict[int, int] = {}
    options = pool.options
    for step in steps:
        before = pool.used
        try:
            address = pool.alloc(step.nbytes, align=step.align)
        except OutOfMemoryError:
            assert options.limit is not None
            assert pool.used <= before
        else:
            assert address % max(step.align, 64) == 0
            live[address] = step.nbytes
        for _ in range(min(step.frees, len(live))):
            freed = list(live)[step.pick % len(live)]
            pool.free(freed)
            del live[freed]
        _check(pool, live)
    return live


def _check(pool: ReferencePool, live: dict[int, int]) -> None:
    options = pool.options
    assert _disjoint(live)
    assert options.limit is None or pool.reserved <= options.limit
    assert pool.reserved >= len(_pages_of(live, options.page)) * options.page
    held = pool.used - sum(map(_rounded, live.values()))
    most = options.bin_capacity + max(2 * options.bin_capacity, pool.peak_in_use)
    assert 0 <= held <= (most if options.bin_capacity else 0), "it is in caches"


@given(OPTIONS, STEPS)
def test_blocks_are_disjoint_holes_are_the_rest_and_limits_hold(
    options: PoolOptions, steps: list[Step]
) -> None:
    pool = ReferencePool(options)
    live = _run(pool, steps)
    pool.flush()
    assert pool.used == sum(map(_rounded, live.values()))
    intervals = pool.free_intervals()
    pieces = sorted([*intervals, *((a, a + _rounded(n)) for a, n in live.items())])
    assert pieces[0][0] == 0
    assert pieces[-1][1] == SMALL
    assert all(e == s for (_, e), (s, _) in pairwise(pieces))
    assert all(e < s for (_, e), (s, _) in pairwise(intervals)), "neighbours are merged"
    before = pool.reserved
    assert pool.trim() == before - pool.reserved
    if options.page == 4 * KIB:
        assert pool.reserved == len(_pages_of(live, 4 * KIB)) * 4 * KIB
    for address in live:
        pool.free(address)
    pool.trim()
    assert pool.free_intervals() == [(0, SMALL)]
    assert (pool.used, pool.reserved) == (0, 0)


NEVER = 1e6  # seconds: the background thread sleeps, and the test says what time it is


class _Both:
    """A pool and its reference, which are asked for the same; every answer is compared."""

    def __init__(self, options: PoolOptions) -> None:
        self.native = InstrumentedPool(options)
        self.reference = ReferencePool(self.native.options)
        self.live: list[tuple[int, int]] = []

    def alloc(self, nbytes: int, align: int = 64) -> bool:
        """Return whether there was room."""
        try:
            address = self.reference.alloc(nbytes, align=align)
        except OutOfMemoryError as error:
            with pytest.raises(OutOfMemoryError) as refused:
                self.native.alloc(nbytes, align=align)
            assert str(refused.value) == str(error)
            return False
        handle = self.native.alloc(nbytes, align=align)
        assert handle.address == address
        self.live.append((address, handle))
        return True

    def free(self, index: int) -> None:
        address, handle = self.live.pop(index)
        self.reference.free(address)
        self.native.free(handle)

    def step(self, step: Step) -> None:
        """An allocation, and frees."""
        self.alloc(step.nbytes, step.align)
        for _ in range(min(step.frees, len(self.live))):
            self.free(step.pick % len(self.live))

    def trim(self) -> None:
        assert self.native.trim() == self.reference.trim()

    def compare(self) -> None:
        assert replace(self.native.statistics(), threads=1) == self.reference.statistics()


@settings(max_examples=tries(40, 1500))
@given(options=OPTIONS, steps=STEPS, trims=st.booleans())
def test_decisions_are_those_of_the_reference(options: PoolOptions, steps: list[Step], trims: bool) -> None:
    both = _Both(options)
    for step in steps:
        both.step(step)
        both.compare()
        if trims and step.pick < 50:
            both.trim()


@given(
    steps=STEPS,
    waits=st.lists(st.sampled_from((0.0, 0.3, 1.0, 2.5)), min_size=80, max_size=80),
    soft=st.sampled_from((None, 1.1)),
    limit=st.sampled_from((None, 6 * MIB)),
)
def test_decays_are_those_of_the_reference(
    steps: list[Step], waits: list[float], soft: Any, limit: int | None
) -> None:
    both = _Both(PoolOptions(soft_limit=soft, limit=limit, decay=NEVER, bin_capacity=256 * KIB))
    now = 0.0
    for step, wait in zip(steps, waits, strict=False):
        both.step(step)
        now += wait * NEVER
        assert pool_functions.decay_at(both.native.object, now) == both.reference.decay_at(now)
        both.compare()


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "says"),
    (
        ((-1,), "float32", BoundsError, "negative extent"),
        ((2**62,), "float32", BoundsError, "more bytes than 64 bits"),
        ((2**64,), "float32", PoolUsageError, "an extent is an integer within 64 bits"),
        ((True,), "float32", PoolUsageError, "an extent is an integer, not bool"),
        (("n", 2), "float32", PoolUsageError, "an extent is an integer, not str"),
        ((2, "n"), "float32", PoolUsageError, "an extent is an integer, and "),
        ((3,), "floot", PoolUsageError, "'floot' is no dtype"),
    ),
)
def test_tensors_that_make_no_sense(shape: Any, dtype: Any, error: type[Exception], says: str) -> None:
    pool = InstrumentedPool()
    with pytest.raises(error, match=says):
        pool.empty(shape, dtype)
    assert pool.statistics().allocs == 0


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("limited", (False, True))
def test_whole_traces_are_placed_alike(workload: str, limited: bool) -> None:
    """Under a limit some allocations are refused, by both; and both are trimmed now and then."""
    trace = make_trace(workload, 4)
    trace = replace(trace, events=trace.events[: tries(1_500, len(trace.events))])
    limit = peak_live(trace) * 9 // 10 if limited else None
    both = _Both(PoolOptions(soft_limit=Fraction(21, 20), limit=limit))
    blocks: dict[int, tuple[int, int]] = {}
    refused = 0
    for index, event in enumerate(trace.events):
        match event:
            case Alloc(block=block, nbytes=nbytes) if both.alloc(nbytes):
                blocks[block] = both.live[-1]
            case Alloc():
                refused += 1
            case Free(block=block) if block in blocks:
                both.free(both.live.index(blocks.pop(block)))
        if limited and index % 500 == 499:
            both.trim()
    both.compare()
    assert (refused > 0) == limited


def _ranges(source: Random) -> list[tuple[int, int]]:
    """Where sizes are drawn from: most that a thread keeps, few, one, small ones, or larger ones too."""
    few = [(size, size) for size in source.choices(range(16 * KIB, 256 * KIB), k=5)]
    kinds = [[(KIB, 256 * KIB)], few, few[:1], [(1, 40 * KIB)], [(1, 300 * KIB), *few, (MIB, MIB)]]
    return source.choice(kinds)


@pytest.mark.parametrize("seed", range(tries(5, 400)))
def test_replaced_blocks_are_placed_alike(seed: int) -> None:
    """Hundreds of blocks, so that what a thread keeps for blocks of nearly their size is full at times."""
    source = Random(seed)
    ranges, count = _ranges(source), source.choice((300, 600))
    options = PoolOptions(
        bin_capacity=source.choice((64 * KIB, 2 * MIB, 8 * MIB)),
        limit=source.choice((None, count * 150 * KIB)),
    )
    both = _Both(options)
    nearest = source.choice((0, 0, 50))  # so many are looked at for the lowest
    for step in range(5 * count):
        nbytes = source.randint(*source.choice(ranges))
        if len(both.live) > count or (both.live and step % 1500 > 1200):
            some = range(min(nearest, len(both.live)))
            both.free(min(some, default=source.randrange(len(both.live)), key=both.live.__getitem__))
        both.alloc(nbytes)
    both.compare()


def _options(source: Random) -> PoolOptions:
    page = 2 ** source.randint(12, 21)
    return PoolOptions(
        soft_limit=source.choice(
            (None, 0, MIB, 16 * MIB, Fraction(1), Fraction(21, 20), Fraction(11, 10), 2)
        ),
        limit=source.choice((None, None, page * source.randint(1, 64), page + source.randint(0, 64 * MIB))),
        page=page,
        bin_largest=source.choice((0, 63, 64, 4 * KIB, 48 * KIB, 64 * KIB)),
        bin_capacity=source.choice((0, 1, 64 * KIB, 100_000, 2 * MIB, 64 * MIB, 2**40)),
        capacity=source.choice((None, 64 * MIB, 256 * MIB)),
    )


def _sizes(source: Random) -> list[int]:
    """Few sizes or many, of which some are beyond 64 KiB."""
    least, most = sorted(2 ** source.randint(0, 21) for _ in range(2))
    count = source.choice((1, 3, 30, 1000))
    return [source.randint(least, max(most, least + 1)) for _ in range(count)]


ENDS = (426, 775)  # in which a run of free pages ends with the range


@pytest.mark.parametrize("seed", sorted({*range(tries(10, 1000)), *ENDS}))
def test_programs_under_any_options_are_placed_alike(seed: int) -> None:
    source = Random(seed)
    both, sizes = _Both(_options(source)), _sizes(source)
    kept = source.choice((5, 50, 200))
    for step in range(600):
        both.alloc(source.choice(sizes), source.choice((1, 64, 64, 256)))
        while len(both.live) > kept or (both.live and source.random() < 0.4):
            both.free(source.randrange(len(both.live)))
        if step % 100 == 99:
            both.compare()
            if source.random() < 0.2:
                both.trim()
    both.compare()


@pytest.mark.parametrize("sizes", ((48 * KIB,), (64, 192), tuple(range(64, 64 * 300, 64))))
def test_ranges_of_many_holes_are_placed_alike(sizes: tuple[int, ...]) -> None:
    """Hundreds of holes of one size, or of nearly as many sizes; they are filled, and come anew."""
    source = Random(len(sizes))
    both = _Both(PoolOptions(bin_capacity=0))
    for _ in range(1300):
        both.alloc(source.choice(sizes))
    for index in range(len(both.live) - 1, -1, -2):
        both.free(index)
    for _ in range(300):
        both.alloc(source.choice(sizes) // source.choice((1, 2)))
        both.free(source.randrange(len(both.live)))
    both.compare()


@pytest.mark.parametrize(
    "options",
    (
        PoolOptions(),
        PoolOptions(bin_largest=4 * KIB, bin_capacity=64 * KIB, page=4 * KIB),
        PoolOptions(soft_limit=Fraction(1)),
        PoolOptions(limit=83 * MIB, soft_limit=None),
    ),
)
def test_blocks_with_slack_are_placed_alike(options: PoolOptions) -> None:
    """Among many holes blocks are replaced by others of nearly their size, until memory gets scarce."""
    source = Random(7)
    both, slack = _Both(options), 0
    for step in range(tries(1500, 15000)):
        nbytes, align = source.randint(1, 280 * KIB), source.choice((64, 64, 64, 256))
        both.alloc(nbytes, align)
        while len(both.live) > (600 if step % 1000 < 650 else 300):
            both.free(source.randrange(len(both.live)))
        slack = max(slack, both.reference.slack)
        if step % 100 == 99:
            both.compare()
    both.compare()
    assert slack > 0
    assert (both.reference.slack == 0) == (options.limit is not None), "with a limit it is freed"
    for index in reversed(range(len(both.live))):
        both.free(index)
    both.native.trim()
    assert both.native.statistics().used == 0
