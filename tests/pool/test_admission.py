"""Admission to a pool: who may begin, who waits, and that all come to an end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from mmap import PAGESIZE
from random import Random
from threading import Thread
from time import sleep
from typing import Any

import pytest

import symalloc
from examples import mlp
from symalloc import OutOfMemoryError, PoolUsageError
from symalloc.pool.instrumented_pool import PoolSession
from symalloc.pool.native_pool import BlockHandle
from tests.pool.processes import until_asleep
from tests.relax.built import CALLERS
from tests.scale import tries

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


def test_what_others_hold_counts_and_what_a_call_leaves_behind() -> None:
    pool = pool_of(10)
    held = pool.alloc(3 * PAGE)  # which may touch a page more
    assert admitted(pool, 6 * PAGE) and not admitted(pool, 7 * PAGE)
    with pool.admit(6 * PAGE):
        left = pool.alloc(2 * PAGE)
    assert admitted(pool, 2 * PAGE) and not admitted(pool, 3 * PAGE)
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


def test_a_claim_of_several_blocks_has_pages_for_each() -> None:
    pool = pool_of(10)
    with pool.admit(2 * PAGE + 3, "call", blocks=3) as session:
        assert session.limit == 5 * PAGE
        blocks = [pool.alloc(PAGE + 1), pool.alloc(PAGE + 1), pool.alloc(1)]
        assert all(block.pointer % PAGE == 0 for block in blocks)
        with pytest.raises(OutOfMemoryError) as refused:
            pool.alloc(1)
        first, help_ = str(refused.value).splitlines()[:2]
        assert first.startswith(
            "4096 bytes of whole pages do not fit into the session `call`, whose limit is 2"
        )
        assert help_.startswith("  help: claim more blocks, or 4096 bytes more, or free as much")
        assert session.statistics().live == 2 * PAGE + 3
        with pytest.raises(PoolUsageError, match="`call` was admitted with its limit, which stays"):
            session.limit = 6 * PAGE
    with pytest.raises(OutOfMemoryError, match="more than the limit of 40960"), pool.admit(1, blocks=11):
        pass


CLAIMS = [(mlp.MLP, {"n": 127}), (CALLERS.Branch, {"n": 9, "m": 4}), (CALLERS.Calls, {"n": 5})]


@pytest.mark.parametrize(("module", "binding"), CLAIMS, ids=["mlp", "branch", "calls"])
def test_a_plan_says_what_its_call_claims(module: Any, binding: dict[str, int]) -> None:
    at = symalloc.plan(module).at(binding, function="main")
    assert at.call is not None and at.blocks is not None
    pool = symalloc.Pool(limit=claim_of(at.call + at.table, at.blocks), page=PAGESIZE)
    for _ in range(2):
        with pool.admit(at.call + at.table, blocks=at.blocks) as session:
            symalloc.run(module, binding, function="main", pool=pool)
        assert session.statistics().refused == pool.statistics().live == 0
        assert at.call <= session.statistics().peak_live <= at.call + at.table


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


class Call:
    """A call that is admitted in a `thread`; `room`: bytes of pages that it may still take."""

    def __init__(self, pool: symalloc.Pool, thread: ThreadPoolExecutor, nbytes: int, blocks: int) -> None:
        self.thread, self._admission = thread, pool.admit(nbytes, "call", blocks=blocks, timeout=0)
        self.session: PoolSession = thread.submit(self._admission.__enter__).result()
        self.claim = self.room = claim_of(nbytes, blocks)
        assert self.session.limit == self.claim

    def end(self) -> None:
        self.thread.submit(self._admission.__exit__, None, None, None).result()


def claim_of(nbytes: int, blocks: int) -> int:
    """The most pages that blocks of so many bytes take: all but one of them have one byte."""
    return pages(max(nbytes - blocks + 1, 1)) + (blocks - 1) * PAGESIZE


def pages(nbytes: int) -> int:
    return max(-(-nbytes // PAGESIZE), 1) * PAGESIZE


class Adversary:
    """Calls and others that take and free what they may, as awkwardly as they can."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.random, self.calls = Random(seed), list[Call]()
        self.limit = max(self.random.choice((12, 40, 150)) * PAGESIZE, options["page"])
        self.pool = symalloc.Pool(limit=self.limit, **options)
        self.blocks = list[tuple[BlockHandle, Call | None]]()
        self.threads = [ThreadPoolExecutor(1)]  # that do nothing, one at least
        self.refused = self.waited = self.taken = 0

    def step(self) -> None:
        self.random.choices(
            (self.admit, self.end, self.take, self.take_besides, self.free), (5, 2, 50, 6, 37)
        )[0]()

    @property
    def left(self) -> int:
        """Bytes that nobody has, and nobody claims, at least."""
        others = [block.nbytes + 2 * PAGESIZE - 65 for block, call in self.blocks if call not in self.calls]
        claims = sum(call.claim for call in self.calls)
        return self.limit - claims - sum(others) // PAGESIZE * PAGESIZE

    def admit(self) -> None:
        nbytes, blocks = self.random.randrange(1, 8 * PAGESIZE), self.random.choice((1, 1, 2, 5, 12))
        if self.random.random() < 0.5:  # all that is there, or a byte more
            nbytes, blocks = max(self.left, 0) + self.random.randrange(2), 1
        fits = claim_of(nbytes, blocks) <= self.left
        try:
            self.calls.append(Call(self.pool, self.threads[-1], nbytes, blocks))
            assert fits
            self.threads.pop()
            self.threads += [] if self.threads else [ThreadPoolExecutor(1)]
        except OutOfMemoryError:
            self.waited += 1
            assert not fits

    def end(self) -> None:
        if not self.calls:
            return
        call = self.calls.pop(self.random.randrange(len(self.calls)))
        if self.random.random() < 0.8:  # else it leaves them behind
            for held in [each for each in self.blocks if each[1] is call]:
                held[0].free()
                self.blocks.remove(held)
        call.end()
        self.threads.append(call.thread)

    def take(self) -> None:
        if not self.calls:
            return
        call = self.random.choice(self.calls)
        sizes = (*sizes_of(self.random), call.room, max(call.room - 63, 0), call.room // 2)
        nbytes = self.random.choice(sizes)
        try:
            with call.session:
                self.blocks.append((self.pool.alloc(nbytes), call))
        except OutOfMemoryError as error:
            self.refused += 1
            assert pages(nbytes) > call.room and "fit into the session `call`" in str(error), str(error)
            return
        self.taken += 1
        call.room -= pages(nbytes)
        assert call.room >= 0

    def take_besides(self) -> None:
        nbytes = self.random.choice(sizes_of(self.random))
        if nbytes + 3 * PAGESIZE <= self.left:
            self.blocks.append((self.pool.alloc(nbytes), None))

    def free(self) -> None:
        if self.blocks:
            block, call = self.blocks.pop(self.random.randrange(len(self.blocks)))
            if call is not None:
                call.room += pages(block.nbytes)
            block.free()

    def over(self) -> None:
        while self.calls:
            self.end()
        while self.blocks:
            self.free()
        for thread in self.threads:
            thread.shutdown()


def sizes_of(random: Random) -> tuple[int, ...]:
    near = PAGESIZE - 64 + random.randrange(129)
    return random.randrange(65), random.randrange(1, PAGESIZE), near, random.randrange(1, 4 * PAGESIZE)


OPTIONS: list[dict[str, Any]] = [
    {"page": PAGESIZE},
    {"page": PAGESIZE, "bin_capacity": 0},
    {"page": 16 * PAGESIZE},
    {"page": 16 * PAGESIZE, "bin_capacity": 0, "soft_limit": None},
    {"page": PAGESIZE, "guard": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_limit_refuses_an_admitted_call_nothing(options: dict[str, Any]) -> None:
    for seed in range(tries(2, 50)):
        adversary = Adversary(seed, **options)
        for _ in range(4_000):
            adversary.step()
        assert min(adversary.refused, adversary.waited, adversary.taken) > 20
        adversary.over()
        found = adversary.pool.statistics()
        assert (found.live, found.refused) == (0, adversary.refused)
        assert found.peak_reserved <= adversary.limit


@pytest.mark.parametrize("options", OPTIONS[:4], ids=str)
def test_threads_that_are_admitted_are_refused_nothing_though_some_fail(options: dict[str, Any]) -> None:
    pool = symalloc.Pool(limit=40 * PAGESIZE, **options)

    def take(random: Random, room: int) -> None:
        held = list[BlockHandle]()
        for _ in range(30):
            nbytes = random.choice((*sizes_of(random), room, room // 2))
            if pages(nbytes) <= room and random.random() < 0.6:
                held.append(pool.alloc(nbytes))
                room -= pages(nbytes)
            elif held:
                room += pages(held[-1].nbytes)
                held.pop().free()
        for block in held:
            block.free()

    def within(session: PoolSession, number: int, room: int) -> None:
        with session:
            take(Random(number), room)

    def call(number: int) -> None:
        random = Random(number)
        nbytes, blocks = random.randrange(1, 16 * PAGESIZE), random.randrange(1, 5)
        with suppress(ValueError), pool.admit(nbytes, blocks=blocks) as session:
            half = claim_of(nbytes, blocks) // PAGESIZE // 2 * PAGESIZE
            other = Thread(target=within, args=(session, -number, half))
            other.start()
            take(random, claim_of(nbytes, blocks) - half)
            other.join()
            if number % 7 == 0:
                raise ValueError("planted")

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(call, range(tries(100, 3_000)))) == [None] * tries(100, 3_000)
    assert pool.statistics().live == pool.statistics().refused == 0
    assert pool.statistics().peak_reserved <= 40 * PAGESIZE


def test_a_thread_that_ends_within_keeps_no_other_from_its_turn() -> None:
    pool = pool_of(10)
    entered = list[AbstractContextManager[PoolSession]]()

    def enter() -> None:
        entered.append(pool.admit(6 * PAGE, "left"))
        entered[-1].__enter__()

    for _ in range(3):  # a new thread may have the number of one that has ended
        thread = Thread(target=enter)
        thread.start()
        thread.join()
        assert admitted(pool, 4 * PAGE) and not admitted(pool, 5 * PAGE)
        with pytest.raises(PoolUsageError, match="this thread is not in the session `left`"):
            entered.pop().__exit__(None, None, None)
        assert admitted(pool, 10 * PAGE)


@pytest.mark.parametrize(
    ("ends", "error", "said"),
    [
        (lambda pool: pool.close(), PoolUsageError, "the pool is closed"),
        (lambda pool: setattr(pool, "limit", 7 * PAGE), OutOfMemoryError, "more than the limit of 28672"),
    ],
    ids=["closed", "too low"],
)
def test_one_that_waits_is_told_that_the_pool_is_closed_or_its_limit_too_low(
    ends: Callable[[symalloc.Pool], None], error: type[Exception], said: str
) -> None:
    pool = pool_of(10)
    with pool.admit(6 * PAGE), ThreadPoolExecutor(1) as other:
        waits = other.submit(lambda: pool.admit(8 * PAGE).__enter__())
        ends(pool)
        with pytest.raises(error, match=said):
            waits.result()
