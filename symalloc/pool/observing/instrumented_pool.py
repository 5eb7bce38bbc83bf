"""A native pool with limits that move, callbacks, recordings, leak reports and snapshots: `symalloc.Pool`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn, Self

from symalloc.native.native_functions import pool_functions
from symalloc.pool.core.callback_table import OOM
from symalloc.pool.core.interrupts import carrying_interrupts
from symalloc.pool.core.native_pool import NativePool
from symalloc.pool.core.pool_errors import PoolUsageError
from symalloc.pool.core.pool_options import read_bytes
from symalloc.pool.observing.leaks import Holding, LeakWarning, holdings, leak_text
from symalloc.pool.observing.pool_snapshot import PoolSnapshot, live_blocks, range_layouts
from symalloc.pool.observing.recording import ALL_EVENTS, MOST_EVENTS, Recording, recorded_trace
from symalloc.pool.observing.sessions import PoolSession
from symalloc.pool.observing.watermarks import (
    Level,
    OomCallback,
    Watermark,
    WatermarkCallback,
    checked_callback,
    checked_count,
    printing_errors,
    watermark_bounds,
)
from symalloc.pool.simulating.trace import Trace
from symalloc.shown import rendered


class InstrumentedPool(NativePool):
    """A pool of real memory on the CPU that can be watched; `NativePool` documents the arguments.

    Callbacks are called without any lock of the pool, by the thread whose allocation or free passes the mark,
    and may use the pool.  This object keeps them until it is closed, and no longer than it lives itself: one
    that refers to the pool does not keep it alive.  `relax.VirtualMachine` keeps the object of its pool.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        now, bound = self.statistics(), "no limit" if self.limit is None else f"limit {self.limit} B"
        return f"<Pool: {now.live} B live, {now.reserved} B reserved, {bound}>"

    def _repr_html_(self) -> str:
        return rendered("pool_html", self)

    @property
    def limit(self) -> int | None:
        """Bytes that the pool may back at most.  It may be changed at any time, with None to what memory
        there is; memory that is in use beyond a lower limit stays.
        """
        return pool_functions.limit(self.object)

    @limit.setter
    def limit(self, limit: int | None) -> None:
        pool_functions.set_limit(self.object, -1 if limit is None else read_bytes(limit, "limit"))

    def on_high(self, at: Level, callback: WatermarkCallback, *, rearm: int | None = None) -> Watermark:
        """Call `callback(bytes)` when the bytes in use rise to `at` or more, and again only after they have
        been at `rearm` (nine tenths of `at`) or less.

        `at` is bytes (an int) or a share of the limit as it is now (a float or Fraction up to 1).  In use is
        `used` of the statistics: it counts what waits in the threads' caches, up to three times
        `bin_capacity` for each thread.  Setting it does not call, wherever use is now.  Exceptions of the
        callback are printed to the standard error stream; the allocation goes on.  What is no Exception,
        such as KeyboardInterrupt, comes out of the call that passed the mark, whose block is freed.  Raises
        PoolUsageError.
        """
        return self._add_watermark(True, at, callback, rearm)

    def on_low(self, at: Level, callback: WatermarkCallback, *, rearm: int | None = None) -> Watermark:
        """The same when they fall to `at` or less, and again only after `rearm` (eleven tenths) or more."""
        return self._add_watermark(False, at, callback, rearm)

    def _add_watermark(
        self, high: bool, at: Level, callback: WatermarkCallback, rearm: int | None
    ) -> Watermark:
        checked_callback(callback)
        bounds = watermark_bounds(high, at, rearm, self.limit)
        key, call = self._callbacks.add(printing_errors(callback), None)
        number = pool_functions.add_watermark(self.object, high, *bounds, carrying_interrupts(call))
        return Watermark(self.object, number, self._callbacks, key)

    def on_oom(self, callback: OomCallback | None, *, retries: int = 8) -> None:
        """Call `callback(nbytes, tries, why)` when an allocation does not fit; None: call nobody.

        The callback may free memory, trim, or raise the limit; where it answers True the allocation is tried
        again, `retries` times at most, `tries` counting from 0.  Its own allocations of this pool do not call
        it; those of other pools call theirs.  An Exception of it ends the allocation with OutOfMemoryError,
        which says so; what is none, such as KeyboardInterrupt, comes out as it is.  Raises PoolUsageError.
        """
        if checked_count("the number of retries", retries) < 0:
            raise PoolUsageError(f"the number of retries must not be negative, as {retries} is")
        if callback is None:
            self._callbacks.remove(OOM)
            pool_functions.clear_on_oom(self.object)
        else:
            checked_callback(callback)
            _, call = self._callbacks.add(_as_bool(callback), False, number=OOM)
            pool_functions.on_oom(self.object, carrying_interrupts(call), retries)

    def session(self, name: str, limit: float | str | None = None) -> PoolSession:
        """A budget of `limit` bytes within the pool, for `with`: what the thread allocates within, and what
        machines that it runs do, is charged to it.

        An allocation beyond the budget fails, or waits, although the pool has room; OutOfMemoryError names
        the session, and who holds what in it.  A session within another is charged to both.  While sessions
        are open, or their blocks live, each allocation and free of the pool costs locks.  Raises
        PoolUsageError.
        """
        return PoolSession(self.object, name, limit)

    def holders(self) -> list[tuple[str, int]]:
        """Tag and bytes of every block that has a handle or a tag; "" and their sum of all other blocks.

        The bytes add up to `statistics().live`, unless other threads have moved on meanwhile.
        """
        known = self._known()
        rest = self.statistics().live - sum(nbytes for _, nbytes in known)
        return [*known, ("", rest)] if rest > 0 else known

    def _known(self) -> list[tuple[str, int]]:
        return [(b.tag, b.nbytes) for b in live_blocks(pool_functions.holders(self.object))]

    def leaks(self) -> tuple[Holding, ...]:
        """The live blocks by tag, the most bytes first; at the end of a program, those not freed."""
        return holdings(self._known(), self.statistics())

    def snapshot(self) -> PoolSnapshot:
        """The layout of the pool, now.  It takes time in proportion to the number of blocks."""
        return PoolSnapshot(
            ranges=tuple(range_layouts(pool_functions.layout(self.object))),
            blocks=live_blocks(pool_functions.holders(self.object)),
            statistics=self.statistics(),
        )

    def reset_peak(self) -> None:
        """Restart `peak_used` and `peak_reserved` from what is in use now."""
        pool_functions.reset_peak(self.object)

    def record(self, most: int = MOST_EVENTS) -> Recording:
        """Record allocations and frees of any thread from now on; forget earlier ones.

        The last `most` events are kept, in 48 bytes each; the recording says how many were dropped.  Raises
        PoolUsageError.
        """
        if not 1 <= checked_count("the number of events", most) <= ALL_EVENTS:
            raise PoolUsageError(f"the number of events to keep is from 1 to 2^40, not {most}")
        return Recording(self.object, most)

    def start_recording(self, most: int = MOST_EVENTS) -> None:
        """The same, for `stop_recording`."""
        self.record(most)

    def stop_recording(self) -> Trace:
        """Stop recording; the trace, with times and tags.  Blocks that were live before are not in it, and
        neither is what was dropped: `meta["dropped"]` says how many events, where there are any.

        Blocks that were allocated in a `call` and outlive it escape, and those that were said to.
        """
        pool_functions.record(self.object, 0)
        return recorded_trace(*pool_functions.recorded(self.object))

    @contextmanager
    def call(self) -> Iterator[None]:
        """Record what this thread allocates within as one call."""
        number = pool_functions.begin_call(self.object)
        try:
            yield
        finally:
            pool_functions.end_call(self.object, number)

    def close(self) -> tuple[Holding, ...]:
        """Give free memory back, forget all callbacks, end waits and refuse allocations; return the leaks.

        Warns with LeakWarning where there are any.  Blocks that are live stay so, and may be freed; with the
        last one its pages go back, too.  A virtual machine that has the pool may still allocate.
        """
        if self.closed:
            return self.leaks()
        self._alloc = self._empty = _refuse  # type: ignore[assignment]
        self._use = None
        pool_functions.end_waits(self.object)
        pool_functions.clear_callbacks(self.object)
        self._callbacks.clear()
        self.trim()
        leaks = self.leaks()
        if leaks:
            warnings.warn(leak_text(leaks), LeakWarning, stacklevel=2)
        return leaks

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the pool."""
        self.close()


def _as_bool(callback: OomCallback) -> Callable[[int, int, str], bool]:
    return lambda nbytes, tries, why: bool(callback(nbytes, tries, why))


def _refuse(*_: object) -> NoReturn:
    raise PoolUsageError("the pool is closed")


Pool = InstrumentedPool  # its public name
