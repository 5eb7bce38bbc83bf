from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack

import pytest

from symalloc.pool.instrumented_pool import Holding, InstrumentedPool
from symalloc.pool.native_pool import BlockHandle
from symalloc.pool.pool_errors import OutOfMemoryError, PoolUsageError
from tests.pool.processes import at_once, survives

KIB, MIB = 2**10, 2**20


def test_a_budget_is_held_although_the_pool_has_room() -> None:
    pool = InstrumentedPool(limit=64 * MIB)
    with pool.session("request", limit="1MiB") as session:
        pool.alloc(600 * KIB, tag="cache")
        with pytest.raises(OutOfMemoryError) as refused:
            pool.alloc(500 * KIB)
        kept = pool.empty((400 * KIB,), "uint8", tag="weights")
    assert str(refused.value) == (
        "512000 bytes do not fit into the session `request`, whose limit is 1048576: 614400 are held\n"
        "  help: raise the limit of the session by 77824 bytes, or free as much, or run at smaller shapes\n"
        "  held: `cache` 614400 bytes in 1 block"
    )
    pool.alloc(MIB)
    assert session.holdings() == (
        Holding(tag="cache", blocks=1, nbytes=600 * KIB),
        Holding(tag="weights", blocks=1, nbytes=400 * KIB),
    )
    counted = session.statistics()
    assert (counted.live, counted.allocs, counted.frees, counted.refused) == (1000 * KIB, 2, 0, 1)
    del kept
    assert (session.statistics().live, session.statistics().peak_live) == (600 * KIB, 1000 * KIB)
    assert pool.statistics().refused == 1


def test_what_does_not_fit_into_the_pool_names_the_session_too() -> None:
    pool = InstrumentedPool(limit=MIB)
    pool.alloc(512 * KIB, tag="elsewhere")
    with pool.session("outer"), pool.session("request 17", limit=2 * MIB) as session:
        pool.alloc(256 * KIB, tag="cache")
        for timeout in (None, 0.001):
            with pytest.raises(OutOfMemoryError) as refused:
                pool.alloc(512 * KIB, timeout=timeout)
            first, *others = str(refused.value).splitlines()
            assert first.startswith("524288 bytes do not fit under the limit of 1048576: 786432 are in use")
            assert "  session: `request 17` holds 262144 bytes of the 2097152 that it may" in others
            assert "  held: `elsewhere` 524288 bytes in 1 block, `cache` 262144 bytes in 1 block" in others
    assert (session.statistics().live, session.statistics().refused) == (256 * KIB, 2)
    with pytest.raises(OutOfMemoryError) as refused:
        pool.alloc(512 * KIB)
    assert "session" not in str(refused.value)


def test_blocks_are_charged_until_anybody_frees_them() -> None:
    pool = InstrumentedPool()
    with pool.session("one") as session:
        blocks = [pool.alloc(100), pool.alloc(200 * KIB), pool.alloc(9 * MIB)]
    pool.free(pool.alloc(100))
    at_once(lambda: [pool.free(block) for block in blocks[:2]])
    assert session.statistics().live == 9 * MIB
    blocks[2].free()
    assert session.statistics().live == 0
    assert (session.statistics().allocs, session.statistics().frees) == (3, 3)


def test_an_inner_session_is_charged_to_the_outer_one_in_every_thread() -> None:
    pool = InstrumentedPool()
    with pool.session("outer", limit=1000) as outer, pool.session("inner") as inner:
        first = pool.alloc(300)

    def work() -> None:
        with inner:
            pool.alloc(300)
            with pytest.raises(OutOfMemoryError, match="session `outer`"):
                pool.alloc(401)
        with pool.session("other", limit=0) as other, outer:
            with pytest.raises(OutOfMemoryError, match="session `other`"):
                pool.alloc(1)
            other.limit = None
            pool.alloc(1)

    at_once(work, lambda: pool.alloc(10_000))
    assert (outer.statistics().live, inner.statistics().live) == (601, 600)
    first.free()
    assert (outer.statistics().live, inner.statistics().live) == (301, 300)
    outer.limit = 200
    with outer, pytest.raises(OutOfMemoryError, match="raise the limit of the session by 101 bytes"):
        pool.alloc(0)


def test_threads_share_a_session() -> None:
    pool = InstrumentedPool()
    session = pool.session("shared", limit=40 * KIB)

    def work() -> None:
        with session:
            for n in range(500):
                try:
                    pool.free(pool.alloc(n * 97 % (30 * KIB)))
                except OutOfMemoryError:
                    assert session.statistics().live <= 40 * KIB

    at_once(*[work] * 4)
    counted = session.statistics()
    assert (counted.live, counted.allocs + counted.refused) == (0, 2000)
    assert counted.allocs == counted.frees and counted.peak_live <= 40 * KIB


def test_a_session_of_a_pool_that_is_closed_stays_readable() -> None:
    pool = InstrumentedPool()
    with pool.session("late") as session:
        block = pool.alloc(100)
        with pytest.warns(RuntimeWarning, match="100 bytes"):
            pool.close()
        assert session.statistics().live == 100
    block.free()
    assert session.statistics().live == 0


def test_a_failed_allocation_is_charged_to_nobody() -> None:
    pool = InstrumentedPool(limit=MIB)
    with (
        pool.session("big", limit="1GiB") as session,
        pytest.raises(OutOfMemoryError, match="limit of 1048576"),
    ):
        pool.alloc(2 * MIB)
    assert (session.statistics().live, session.statistics().peak_live, session.statistics().refused) == (
        0,
        0,
        1,
    )


def test_guard_mode_has_sessions() -> None:
    pool = InstrumentedPool(guard=True)
    with pool.session("guarded", limit=100) as session:
        block = pool.alloc(60)
        with pytest.raises(OutOfMemoryError, match="session `guarded`"):
            pool.alloc(60)
    block.free()
    assert session.statistics().live == 0


def test_a_forked_process_charges_its_own() -> None:
    pool = InstrumentedPool()
    with pool.session("parent", limit=100) as session:
        block = pool.alloc(60)

        def work() -> None:
            block.free()
            pool.alloc(100)
            assert session.statistics().live == 100

        survives(work)
    assert session.statistics().live == 60


def test_leaving_what_was_not_entered_is_refused() -> None:
    session = InstrumentedPool().session("s")
    with pytest.raises(PoolUsageError, match="not in the session `s`"):
        session.__exit__(None, None, None)


@pytest.mark.parametrize("seed", range(12))
def test_blocks_are_charged_to_the_sessions_that_their_thread_was_in(seed: int) -> None:
    dice, pool = random.Random(seed), InstrumentedPool()
    sessions = [pool.session(f"s{i}") for i in range(4)]
    live: list[tuple[BlockHandle, list[int]]] = []
    charged = [Counter[str]() for _ in sessions]
    for _ in range(60):
        entered = dice.sample(range(4), dice.randrange(3))
        with ExitStack() as stack:
            for index in entered:
                stack.enter_context(sessions[index])
            for _ in range(dice.randrange(12)):
                if live and dice.random() < 0.45:
                    block, owners = live.pop(dice.randrange(len(live)))
                    change, counted = -block.nbytes, "frees"
                    block.free()
                else:
                    block, owners = pool.alloc(dice.randrange(2**21)), entered
                    change, counted = block.nbytes, "allocs"
                    live.append((block, owners))
                for count in (charged[owner] for owner in owners):
                    count["live"] += change
                    count[counted] += 1
        for session, count in zip(sessions, charged, strict=True):
            now = session.statistics()
            assert (now.live, now.allocs, now.frees) == (count["live"], count["allocs"], count["frees"])
