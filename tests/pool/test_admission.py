"""Admission to a pool: who may begin, who waits, and that all come to an end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Thread
from time import sleep

import pytest

import symalloc
from symalloc import OutOfMemoryError, PoolUsageError
from tests.pool.processes import until_asleep

PAGE = 4096


def pool_of(pages: int) -> symalloc.Pool:
    return symalloc.Pool(limit=pages * PAGE, page=PAGE, bin_capacity=0)


def failure(action: Callable[[], object]) -> str:
    try:
        action()
    except OutOfMemoryError as error:
        return str(error)
    return ""


def admitted(pool: symalloc.Pool, nbytes: int, timeout: float = 0.02) -> bool:
    def enter() -> None:
        with pool.admit(nbytes, timeout=timeout):
            pass

    with ThreadPoolExecutor(1) as other:
        return not other.submit(failure, enter).result()


def test_claims_fit_together_whatever_is_taken() -> None:
    pool = pool_of(10)
    with pool.admit(6 * PAGE, "first") as session:
        assert session.limit == 6 * PAGE
        assert admitted(pool, 4 * PAGE) and not admitted(pool, 4 * PAGE + 1)
        with pool.alloc(2 * PAGE):  # a part of the claim
            assert admitted(pool, 4 * PAGE) and not admitted(pool, 4 * PAGE + 1)
        with pytest.raises(OutOfMemoryError, match="session `first`"):
            pool.alloc(6 * PAGE + 1)
    assert admitted(pool, 10 * PAGE)


def test_what_others_hold_counts_and_what_a_call_leaves_behind() -> None:
    pool = pool_of(10)
    held = pool.alloc(3 * PAGE)
    assert admitted(pool, 7 * PAGE) and not admitted(pool, 8 * PAGE)
    with pool.admit(7 * PAGE):
        left = pool.alloc(2 * PAGE)
    assert admitted(pool, 5 * PAGE) and not admitted(pool, 6 * PAGE)
    Thread(target=lambda: (sleep(0.02), left.free(), held.free())).start()
    assert admitted(pool, 10 * PAGE, timeout=30)


def test_refusals_say_why() -> None:
    pool = pool_of(10)
    with (
        pytest.raises(OutOfMemoryError, match="`big` claims 45056 bytes in whole pages, more than the limit"),
        pool.admit(11 * PAGE, "big"),
    ):
        pass
    with pool.admit(8 * PAGE, "first"):
        with pytest.raises(PoolUsageError, match="admitted already, in `first`: it would wait for itself"):
            pool.admit(1).__enter__()
        with ThreadPoolExecutor(1) as other:
            said = other.submit(failure, lambda: pool.admit(3 * PAGE, "late", timeout=0.01).__enter__())
            assert "`late` has waited 0.01 s for 12288 bytes: 1 calls claim 32768, and others hold 0" in (
                said.result()
            )


def test_those_that_wait_are_served_in_their_order() -> None:
    pool, order = pool_of(10), list[str]()

    def enter(name: str, pages: int) -> None:
        with pool.admit(pages * PAGE, name):
            order.append(name)

    with pool.admit(8 * PAGE):
        threads = [Thread(target=enter, args=one) for one in (("large", 10), ("small", 1))]
        for thread in threads:
            thread.start()
            until_asleep(thread)
        assert not order
    for thread in threads:
        thread.join()
    assert order == ["large", "small"]


def test_many_calls_end_and_keep_the_limit_though_some_fail() -> None:
    pool, peaks = pool_of(20), list[int]()

    def call(number: int) -> str:
        source = Random(number)
        pages = source.randrange(1, 6)
        try:
            with (
                pool.admit(2 * pages * PAGE, f"call {number}"),
                pool.alloc(pages * PAGE),
                pool.alloc(pages * PAGE),
            ):
                peaks.append(pool.statistics().live)
                if number % 7 == 0:
                    raise ValueError("planted")
        except ValueError as error:
            return str(error)
        return "done"

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(call, range(600)))
    assert found == ["planted" if n % 7 == 0 else "done" for n in range(600)]
    assert max(peaks) <= 20 * PAGE and pool.statistics().live == 0
