"""Random option sets: the native core places every block of long random programs where the reference does."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import OutOfMemoryError
from symalloc.pool.pool_options import PoolOptions
from tests.pool.reference.reference_pool import ReferencePool
from tests.scale import tries

pytestmark = pytest.mark.usefixtures("native")

KIB, MIB = 2**10, 2**20


def _options(source: random.Random) -> PoolOptions:
    page = 2 ** source.randint(12, 21)
    return PoolOptions(
        soft_limit=source.choice(
            (None, 0, MIB, 16 * MIB, Fraction(1), Fraction(21, 20), Fraction(11, 10), 2)
        ),
        limit=source.choice((None, None, page * source.randint(1, 64), page + source.randint(0, 64 * MIB))),
        page=page,
        separate_escaping=source.random() < 0.3,
        bin_largest=source.choice((0, 63, 64, 4 * KIB, 48 * KIB, 64 * KIB)),
        bin_capacity=source.choice((0, 1, 64 * KIB, 100_000, 2 * MIB, 64 * MIB, 2**40)),
        capacity=source.choice((None, 64 * MIB, 256 * MIB)),
    )


def _sizes(source: random.Random) -> list[int]:
    """Few sizes or many, of which some are beyond 64 KiB."""
    least, most = sorted(2 ** source.randint(0, 21) for _ in range(2))
    count = source.choice((1, 3, 30, 1000))
    return [source.randint(least, max(most, least + 1)) for _ in range(count)]


class _Both:
    """A pool and its reference, which are asked for the same; every answer is compared."""

    def __init__(self, options: PoolOptions) -> None:
        self.native = InstrumentedPool(options)
        self.reference = ReferencePool(self.native.options)
        self.live: list[tuple[int, int]] = []

    def alloc(self, nbytes: int, align: int, *, escapes: bool) -> None:
        try:
            address = self.reference.alloc(nbytes, align=align, escapes=escapes)
        except OutOfMemoryError as error:
            with pytest.raises(OutOfMemoryError) as refused:
                self.native.alloc(nbytes, align=align, escapes=escapes)
            assert str(refused.value) == str(error)
            return
        handle = self.native.alloc(nbytes, align=align, escapes=escapes)
        assert self.native.address(handle) == address
        self.live.append((address, handle))

    def free(self, index: int) -> None:
        address, handle = self.live.pop(index)
        self.reference.free(address)
        self.native.free(handle)

    def compare(self) -> None:
        assert replace(self.native.statistics(), threads=1) == self.reference.statistics()


ENDS = (426, 775)  # in which a run of free pages ends with the range


@pytest.mark.parametrize("seed", sorted({*range(tries(10, 1000)), *ENDS}))
def test_programs_under_any_options_are_placed_alike(seed: int) -> None:
    source = random.Random(seed)
    both, sizes = _Both(_options(source)), _sizes(source)
    kept = source.choice((5, 50, 200))
    for step in range(600):
        both.alloc(source.choice(sizes), source.choice((1, 64, 64, 256)), escapes=source.random() < 0.3)
        while len(both.live) > kept or (both.live and source.random() < 0.4):
            both.free(source.randrange(len(both.live)))
        if step % 100 == 99:
            both.compare()
            if source.random() < 0.2:
                assert both.native.trim() == both.reference.trim()
    both.compare()


@pytest.mark.parametrize("sizes", ((48 * KIB,), (64, 192), tuple(range(64, 64 * 300, 64))))
def test_ranges_of_many_holes_are_placed_alike(sizes: tuple[int, ...]) -> None:
    """Hundreds of holes of one size, or of nearly as many sizes; they are filled, and come anew."""
    source = random.Random(len(sizes))
    both = _Both(PoolOptions(bin_capacity=0))
    for _ in range(1300):
        both.alloc(source.choice(sizes), 64, escapes=False)
    for index in range(len(both.live) - 1, -1, -2):
        both.free(index)
    for _ in range(300):
        both.alloc(source.choice(sizes) // source.choice((1, 2)), 64, escapes=False)
        both.free(source.randrange(len(both.live)))
    both.compare()


@pytest.mark.parametrize(
    "options",
    (
        PoolOptions(),
        PoolOptions(bin_largest=4 * KIB, bin_capacity=64 * KIB, page=4 * KIB),
        PoolOptions(separate_escaping=True, soft_limit=Fraction(1)),
        PoolOptions(limit=83 * MIB, soft_limit=None),
    ),
)
def test_blocks_with_slack_are_placed_alike(options: PoolOptions) -> None:
    """Among many holes blocks are replaced by others of nearly their size, until memory gets scarce."""
    source = random.Random(7)
    both, slack = _Both(options), 0
    for step in range(tries(1500, 15000)):
        nbytes, align = source.randint(1, 280 * KIB), source.choice((64, 64, 64, 256))
        both.alloc(nbytes, align, escapes=source.random() < 0.1)
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
