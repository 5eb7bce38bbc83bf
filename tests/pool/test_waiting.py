"""Allocations that wait for memory.  Times are generous: they only end what would hang."""

from __future__ import annotations

import _thread
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from time import sleep
from typing import Any

import pytest
from hypothesis import given

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import OutOfMemoryError, PoolUsageError
from symalloc.pool.trace import ExactSize
from tests.pool.processes import ran, survives, until, until_asleep
from tests.pool.steps import STEPS, Step

KIB, MIB = 2**10, 2**20
LONG = 60.0  # seconds


class _Waiting(Thread):
    """An allocation in a thread of its own, which waits."""

    def __init__(self, ask: Callable[[], object], served: list[str], name: str) -> None:
        super().__init__(name=name)
        self._ask, self._served = ask, served
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._ask()
            self._served.append(self.name)
        except Exception as error:
            self.error = error


class _Line:
    """Allocations that wait for a pool of 8 MiB, which is full."""

    def __init__(self, **options: object) -> None:
        self.asked = 0
        self.pool = InstrumentedPool(limit=8 * MIB, **options)  # type: ignore[arg-type]
        self.pool.on_oom(self._count)
        self.held = [self.pool.alloc(MIB) for _ in range(8)]
        self.served: list[str] = []
        self.threads: list[_Waiting] = []

    def _count(self, nbytes: int, tries: int, why: str) -> bool:
        self.asked += 1
        return False

    def add(self, name: str, ask: Callable[[], object]) -> _Waiting:
        """One more thread; it waits when this returns."""
        asked = self.asked
        thread = _Waiting(ask, self.served, name)
        thread.start()
        self.threads.append(thread)
        until(lambda: self.asked > asked or not thread.is_alive())
        until_asleep(thread)  # from the callback, which is asked first, to the queue
        return thread

    def join(self) -> None:
        """Wait for all of them."""
        for thread in self.threads:
            thread.join(LONG)
            assert not thread.is_alive()


@contextmanager
def _line(**options: object) -> Iterator[_Line]:
    line = _Line(**options)
    try:
        yield line
    finally:
        line.join()


Ask = Callable[[InstrumentedPool], object]
ASKS: dict[str, tuple[Ask, int, dict[str, Any]]] = {
    "a block": (lambda pool: pool.alloc(MIB, timeout=LONG), 1, {}),
    "a guarded block": (lambda pool: pool.alloc(MIB, timeout=LONG), 1, {"guard": True}),
    "a tensor": (lambda pool: pool.empty((MIB,), "uint8", "named", timeout=LONG), 1, {}),
    "what others cache": (lambda pool: pool.alloc(3 * MIB, timeout=LONG), 3, {"bin_capacity": 64 * MIB}),
}


@pytest.mark.parametrize("asked", ASKS)
def test_frees_serve_who_waits(asked: str) -> None:
    ask, frees, options = ASKS[asked]
    with _line(**options) as line:
        line.add("one", lambda: ask(line.pool))
        assert line.served == []
        for _ in range(frees):
            line.held.pop(0).free()
    assert line.served == ["one"]
    assert line.pool.statistics().refused == 0


def test_a_large_one_is_not_starved_by_small_ones_behind_it() -> None:
    with _line() as line:
        line.add("large", lambda: line.pool.alloc(4 * MIB, timeout=LONG))
        first = line.threads[0]
        for name in ("small", "smaller"):
            line.add(name, lambda: line.pool.alloc(4 * MIB, timeout=LONG))
        for _ in range(3):
            line.held.pop(0).free()
        assert line.served == []
        line.held.pop(0).free()
        first.join(LONG)
        assert line.served == ["large"]
        for _ in range(4):
            line.held.pop(0).free()
        line.threads[1].join(LONG)
        assert line.served == ["large", "small"]
        line.pool.limit = 16 * MIB
    assert line.served == ["large", "small", "smaller"]


def test_those_who_do_not_wait_pass() -> None:
    with _line() as line:
        line.add("large", lambda: line.pool.alloc(4 * MIB, timeout=LONG))
        line.held.pop().free()
        line.pool.alloc(MIB // 2)
        line.pool.alloc(MIB // 2, timeout=LONG)
        line.pool.limit = 16 * MIB
    assert line.served == ["large"]


def test_a_thread_that_waits_for_itself_ends_at_its_time() -> None:
    pool = InstrumentedPool(limit=MIB)
    pool.alloc(MIB, tag="mine")
    with pytest.raises(OutOfMemoryError, match=r"(?s)limit of 1048576.*waited for [\d.]+ s, in vain.*`mine`"):
        pool.alloc(64, timeout=0.05)
    with pytest.raises(OutOfMemoryError) as refused:
        pool.alloc(64, timeout=0)
    assert "waited" not in str(refused.value)
    assert pool.statistics().refused == 2


def test_all_allocations_of_a_pool_may_wait() -> None:
    pool = InstrumentedPool(limit=MIB, wait=0.05)
    pool.alloc(MIB)
    for ask in (lambda: pool.alloc(64), lambda: pool.empty((1,), "int8")):
        with pytest.raises(OutOfMemoryError, match="waited"):
            ask()


def test_callbacks_are_asked_first_and_do_not_wait_themselves() -> None:
    pool = InstrumentedPool(limit=MIB, wait=LONG)
    held = pool.alloc(MIB)

    def free(nbytes: int, tries: int, why: str) -> bool:
        with pytest.raises(OutOfMemoryError):
            pool.alloc(MIB, timeout=LONG)
        held.free()
        return True

    pool.on_oom(free)
    pool.alloc(MIB)


def test_closing_ends_waits() -> None:
    with _line() as line, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        thread = line.add("one", lambda: line.pool.alloc(MIB, timeout=LONG))
        line.pool.close()
        thread.join(LONG)
    assert isinstance(thread.error, PoolUsageError) and "the pool is closed" in str(thread.error)
    with pytest.raises(PoolUsageError, match="the pool is closed"):
        line.pool.alloc(MIB, timeout=LONG)


def test_an_interrupt_ends_the_wait_of_the_main_thread() -> None:
    with _line() as line:
        asked = line.asked

        def interrupt() -> None:
            until(lambda: line.asked > asked)
            sleep(0.02)
            _thread.interrupt_main()

        Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            line.pool.alloc(MIB, timeout=LONG)
        line.held.pop().free()
        line.pool.alloc(MIB)


def test_a_forked_process_has_nobody_who_waits() -> None:
    with _line() as line:
        line.add("one", lambda: line.pool.alloc(MIB, timeout=LONG))

        def work() -> None:
            line.pool.free(line.held[0])
            again = line.pool.alloc(MIB)
            line.pool.free(again)
            assert line.pool.statistics().used == 8 * MIB, "it caches again"

        survives(work)
        line.held.pop().free()
    assert line.served == ["one"]


def test_a_budget_is_waited_for() -> None:
    with _line() as line:
        line.pool.limit = 64 * MIB
        session = line.pool.session("small", limit=MIB)
        with session:
            block = line.pool.alloc(MIB)

        def ask() -> None:
            with session:
                line.pool.alloc(MIB, timeout=LONG)

        line.add("within", ask)
        line.pool.alloc(9 * MIB, timeout=LONG)  # nobody waits for the pool
        assert line.served == []
        block.free()
    assert line.served == ["within"]
    with session, pytest.raises(OutOfMemoryError, match=r"(?s)session `small`.*waited"):
        line.pool.alloc(1, timeout=0.01)


_ENDS_WHILE_OTHERS_WAIT = """
import sys, threading, time, symalloc

class EndsSlowly:
    def __init__(self):
        self.sleep = time.sleep

    def __del__(self):
        self.sleep(0.2)

sys.ends = EndsSlowly()
pool = symalloc.Pool(limit=2**20)
held = pool.alloc(2**20)
for seconds in (0.1, 60):
    threading.Thread(target=pool.alloc, args=(2**20,), kwargs={"timeout": seconds}, daemon=True).start()
time.sleep(0.05)
"""


def test_python_ends_while_threads_of_it_wait() -> None:
    assert ran(sys.executable, "-c", _ENDS_WHILE_OTHERS_WAIT) == (0, "", "")


@given(steps=STEPS)
def test_exact_sizes_reserve_the_most_blocks_of_each_size(steps: list[Step]) -> None:
    peer, most = ExactSize(), Counter[int]()
    live: list[int] = []
    for step in steps:
        live.append(peer.alloc(step.nbytes))
        assert live[-1] >= step.nbytes and live[-1] % 4096 == 0 < live[-1]
        most |= Counter(live)
        assert peer.reserved == sum(size * count for size, count in most.items())
        for _ in range(min(step.frees, len(live))):
            peer.free(live.pop(step.pick % len(live)))
