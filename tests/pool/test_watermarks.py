from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import OutOfMemoryError, PoolUsageError
from symalloc.pool.pool_options import PoolOptions

KIB, MIB = 2**10, 2**20
UNBINNED = PoolOptions(bin_capacity=0)


def test_a_high_mark_fires_once_until_it_is_left() -> None:
    pool, seen = InstrumentedPool(UNBINNED), list[int]()
    pool.on_high(4 * MIB, seen.append, rearm=2 * MIB)
    blocks = [pool.alloc(MIB) for _ in range(6)]
    assert seen == [4 * MIB]
    for _ in range(3):
        pool.free(blocks.pop())
    blocks += [pool.alloc(MIB) for _ in range(2)]
    assert seen == [4 * MIB], "3 MiB is above what rearms it"
    for _ in range(3):
        pool.free(blocks.pop())
    pool.alloc(3 * MIB)
    assert seen == [4 * MIB, 5 * MIB]


def test_a_low_mark_is_the_other_way_round() -> None:
    pool, seen = InstrumentedPool(UNBINNED), list[int]()
    pool.on_low(MIB, seen.append, rearm=3 * MIB)
    blocks = [pool.alloc(MIB) for _ in range(2)]
    pool.free(blocks.pop())
    assert seen == [], "it was never above what arms it"
    blocks += [pool.alloc(MIB) for _ in range(3)]
    while blocks:
        pool.free(blocks.pop())
    assert seen == [MIB]


def test_shares_are_of_the_limit() -> None:
    pool, seen = InstrumentedPool(UNBINNED, limit=10 * MIB), list[int]()
    pool.on_high(0.5, seen.append)
    pool.on_high(Fraction(9, 10), seen.append)
    for _ in range(10):
        pool.alloc(MIB)
    assert seen == [5 * MIB, 9 * MIB]


def test_where_use_is_beyond_the_mark_already_it_waits() -> None:
    pool, seen = InstrumentedPool(UNBINNED), list[int]()
    first = pool.alloc(4 * MIB)
    pool.on_high(2 * MIB, seen.append)
    second = pool.alloc(MIB)
    assert seen == []
    pool.free(first)
    pool.free(second)
    pool.alloc(2 * MIB)
    assert seen == [2 * MIB]


@pytest.mark.parametrize(
    ("high", "at", "rearm", "says"),
    (
        (True, -1, None, "whole number of at least 0"),
        (True, 1.5, None, "a share of the limit from 0 to 1\\) is 1.5"),
        (True, float("nan"), None, "a share of the limit from 0 to 1\\) is nan"),
        (True, True, None, "bytes, or a share of the limit .* is True"),
        (True, "1GiB", None, "bytes, or a share of the limit .* is '1GiB'"),
        (True, 2**63, None, "at most 4611686018427387904"),
        (True, 100, 1.5, "is 1.5; it must be a whole number"),
        (False, 100, 2**63, "at most 4611686018427387904"),
        (True, 100, 100, "rearms below itself, not at 100"),
        (True, 100, -1, "is -1; it must be a whole number"),
        (False, 100, 100, "rearms above itself, not at 100"),
    ),
)
def test_marks_that_make_no_sense(high: bool, at: float, rearm: int | None, says: str) -> None:
    pool = InstrumentedPool()
    with pytest.raises(PoolUsageError, match=says):
        (pool.on_high if high else pool.on_low)(at, print, rearm=rearm)


def test_callbacks_that_make_no_sense() -> None:
    pool: Any = InstrumentedPool()
    for watch in (partial(pool.on_high, 1), partial(pool.on_low, 1), pool.on_oom):
        with pytest.raises(PoolUsageError, match="a callback is a function, not 5"):
            watch(5)
    for retries in (-1, True, 1.5, 2**63):
        with pytest.raises(PoolUsageError, match="the number of retries"):
            pool.on_oom(print, retries=retries)


def test_what_a_callback_raises_is_said_and_goes_no_further(capfd: pytest.CaptureFixture[str]) -> None:
    pool = InstrumentedPool(UNBINNED)

    def fail(in_use: int) -> None:
        raise RuntimeError(f"cannot cope with {in_use}")

    pool.on_high(MIB, fail)
    block = pool.alloc(2 * MIB)
    said = capfd.readouterr().err
    assert said.startswith("symalloc: a callback at a watermark failed; the pool goes on:")
    assert "RuntimeError: cannot cope with 2097152" in said
    pool.free(block)
    pool.alloc(2 * MIB)
    assert "cannot cope" in capfd.readouterr().err, "it is called again"


def test_a_callback_may_use_the_pool() -> None:
    pool, blocks, seen = InstrumentedPool(UNBINNED), list[int](), list[int]()

    def shed(in_use: int) -> None:
        seen.append(in_use)
        while len(blocks) > 1:
            pool.free(blocks.pop(0))
        pool.free(pool.alloc(64 * MIB))  # passes its own mark, while it runs

    pool.on_high(4 * MIB, shed)
    for _ in range(12):
        blocks.append(pool.alloc(MIB))
    assert seen == [4 * MIB] * 5, "each time it leaves one block and the new one"


def test_a_mark_that_is_cancelled_in_a_callback_is_called_no_more() -> None:
    pool, seen, marks = InstrumentedPool(UNBINNED), list[str](), dict[str, Any]()

    def cancelling(name: str, *gone: str) -> Callable[[int], None]:
        def call(in_use: int) -> None:
            seen.append(name)
            for each in gone:
                marks[each].cancel()

        return call

    marks["first"] = pool.on_high(MIB, cancelling("first", "second", "first"))
    marks["second"] = pool.on_high(MIB, cancelling("second"))
    marks["third"] = pool.on_high(MIB, cancelling("third", "third"))
    for _ in range(3):
        pool.free(pool.alloc(2 * MIB))
    assert seen == ["first", "third"], "the second was due when the first cancelled it"


class _Stop(BaseException):
    pass


@pytest.mark.parametrize("error", (KeyboardInterrupt("now"), SystemExit(3), _Stop("my own")))
@pytest.mark.parametrize("guard", (False, True))
def test_what_is_no_exception_passes_through_callbacks(error: BaseException, guard: bool) -> None:
    pool, seen = InstrumentedPool(UNBINNED, limit=4 * MIB, guard=guard), list[int]()

    def stop(*_: object) -> bool:
        raise error

    first = pool.on_high(MIB, stop)
    pool.on_high(MIB, seen.append)
    for allocate in (partial(pool.alloc, 2 * MIB), partial(pool.empty, (2 * MIB,), "uint8", tag="x")):
        with pytest.raises(type(error)) as raised:
            allocate()
        assert raised.value is error
    assert pool.statistics().live == 0, "nobody has got a block"
    first.cancel()
    pool.free(pool.alloc(2 * MIB))
    assert seen, "it has stayed due"
    pool.on_low(MIB, stop)
    block = pool.alloc(2 * MIB)
    with pytest.raises(type(error)):
        pool.free(block)
    assert pool.statistics().live == 0
    pool.on_oom(stop)
    with pytest.raises(type(error)):
        pool.alloc(8 * MIB)
    assert pool.statistics().refused == 1


def test_callbacks_for_want_of_memory_nest_across_pools() -> None:
    pools = [InstrumentedPool(UNBINNED, limit=MIB) for _ in range(3)]
    asked: list[int] = []

    def asking(index: int) -> Callable[[int, int, str], bool]:
        def ask(nbytes: int, tries: int, why: str) -> bool:
            asked.append(index)
            with pytest.raises(OutOfMemoryError):
                pools[(index + 1) % 3].alloc(nbytes)
            return False

        return ask

    for index, pool in enumerate(pools):
        pool.on_oom(asking(index))
    with pytest.raises(OutOfMemoryError):
        pools[1].alloc(2 * MIB)
    assert asked == [1, 2, 0], "each pool asks once; the second pool's own callback is running"


def test_for_want_of_memory_it_is_asked_and_tried_again() -> None:
    pool = InstrumentedPool(UNBINNED, limit=4 * MIB)
    blocks, asked = [pool.alloc(MIB) for _ in range(4)], list[tuple[int, int, str]]()

    def give(nbytes: int, tries: int, why: str) -> bool:
        asked.append((nbytes, tries, why.splitlines()[0]))
        pool.free(blocks.pop())
        return True

    pool.on_oom(give)
    pool.alloc(3 * MIB)
    assert [(nbytes, tries) for nbytes, tries, _ in asked] == [(3 * MIB, 0), (3 * MIB, 1), (3 * MIB, 2)]
    assert asked[0][2] == (
        "3145728 bytes do not fit under the limit of 4194304: 4194304 are in use, 4194304 reserved"
    )


def test_retries_are_bounded() -> None:
    pool, asked = InstrumentedPool(UNBINNED, limit=MIB), list[int]()
    pool.on_oom(lambda nbytes, tries, why: asked.append(tries) or True, retries=3)
    with pytest.raises(OutOfMemoryError, match="2097152 bytes do not fit"):
        pool.alloc(2 * MIB)
    assert asked == [0, 1, 2]
    pool.on_oom(None)
    with pytest.raises(OutOfMemoryError):
        pool.alloc(2 * MIB)
    assert asked == [0, 1, 2]


def test_a_failing_callback_is_named_by_the_error() -> None:
    pool = InstrumentedPool(UNBINNED, limit=MIB)

    def fail(nbytes: int, tries: int, why: str) -> bool:
        raise KeyError("cache")

    pool.on_oom(fail)
    with pytest.raises(OutOfMemoryError, match="the on_oom callback failed: KeyError: 'cache'"):
        pool.alloc(2 * MIB)
    pool.free(pool.alloc(MIB))
