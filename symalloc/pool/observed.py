"""What stands around the native pool: limits and callbacks, records, tallies, holders, leaks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from types import TracebackType
from typing import Any, NoReturn, Self

from symalloc.pool.calls import native_function
from symalloc.pool.counters import Statistics
from symalloc.pool.errors import PoolUsageError
from symalloc.pool.leaks import Holding, LeakWarning, holdings, leak_text
from symalloc.pool.marks import OomCallback, WatchCallback, high_marks, low_marks, said_aloud
from symalloc.pool.recording import recorded_trace
from symalloc.pool.registry import register
from symalloc.pool.snapshot import Snapshot, read_snapshot
from symalloc.pool.tally import Tally, read_tally
from symalloc.pool.trace import Trace

__all__ = ["Observed", "Watch"]

INT64_MAX = 2**63 - 1


class Watch:
    """A callback at a watermark."""

    __slots__ = ("_id", "_pool")

    def __init__(self, pool: Any, number: int) -> None:
        self._pool, self._id = pool, number

    def cancel(self) -> None:
        """Has the callback not called again; one that runs now in another thread ends first or not."""
        native_function("remove_watch")(self._pool, self._id)


class Observed:
    """The part of a native pool that watches it.  Thread-safe.

    Callbacks are called without any lock of the pool, by the thread whose allocation or free passes the mark,
    and may use the pool.  The pool keeps them until it is closed; one that refers to the pool keeps it alive.
    """

    __slots__ = ("__weakref__", "_alloc", "_empty", "object")

    _alloc: Callable[..., Any]
    _empty: Callable[..., Any]

    def __init__(self, native: Any) -> None:
        self.object = native
        register(self)

    def statistics(self) -> Statistics:
        """What is counted of the pool, now."""
        raise NotImplementedError

    @property
    def limit(self) -> int | None:
        """Bytes that the pool may back at most, None: any number.  It may be changed at any time; memory that
        is in use beyond a lower limit stays.
        """
        limit = int(native_function("limit")(self.object))
        return None if limit < 0 else limit

    @limit.setter
    def limit(self, limit: int | None) -> None:
        if limit is not None and not 0 <= limit <= INT64_MAX:
            raise PoolUsageError(f"a limit is a number of bytes from 0 to 2^63 - 1, not {limit}")
        native_function("set_limit")(self.object, -1 if limit is None else limit)

    def on_high(
        self, at: int | float | Fraction, callback: WatchCallback, *, rearm: int | None = None
    ) -> Watch:
        """Calls `callback(bytes)` when the bytes in use rise to `at` or more, and again only after they have
        been at `rearm` (nine tenths of `at`) or less.

        `at` is bytes (an int) or a share of the limit as it is now (a float or Fraction up to 1).  In use is
        what the statistics call `used`: what waits for the threads' next blocks counts, up to three times
        `bin_capacity` for each thread.  Not called for where use is when it is set.  What the callback raises
        is said on the standard error stream; the allocation goes on.  Raises PoolUsageError.
        """
        return self._watch(True, high_marks(at, rearm, self.limit), callback)

    def on_low(
        self, at: int | float | Fraction, callback: WatchCallback, *, rearm: int | None = None
    ) -> Watch:
        """The same when they fall to `at` or less, and again only after `rearm` (eleven tenths) or more."""
        return self._watch(False, low_marks(at, rearm, self.limit), callback)

    def _watch(self, high: bool, marks: tuple[int, int], callback: WatchCallback) -> Watch:
        return Watch(
            self.object, native_function("add_watch")(self.object, high, *marks, said_aloud(callback))
        )

    def on_oom(self, callback: OomCallback | None, *, retries: int = 8) -> None:
        """Calls `callback(nbytes, tries, why)` when an allocation does not fit; None: nobody is asked.

        The callback may free memory, trim, or raise the limit; where it answers True the allocation is tried
        again, `retries` times at most, `tries` counting from 0.  What it allocates itself is not asked for.
        What it raises ends the allocation with OutOfMemoryError, which says so.  Raises PoolUsageError.
        """
        if retries < 0:
            raise PoolUsageError(f"the number of retries must not be negative, as {retries} is")
        if callback is None:
            native_function("clear_on_oom")(self.object)
        else:
            native_function("on_oom")(self.object, _answers(callback), retries)

    def holders(self) -> list[tuple[str, int]]:
        """Tag and bytes of every block that has a handle or a tag."""
        flat = list(native_function("holders")(self.object))
        return [(str(tag), int(nbytes)) for tag, nbytes in zip(flat[::3], flat[2::3], strict=True)]

    def leaks(self) -> tuple[Holding, ...]:
        """What is live, by tag, the most bytes first; at the end of a program, what was not freed."""
        return holdings(self.holders(), self.statistics())

    def snapshot(self) -> Snapshot:
        """Where everything lies, now.  It takes time in proportion to what is there."""
        return read_snapshot(
            native_function("layout")(self.object), native_function("holders")(self.object), self
        )

    def reset_peak(self) -> None:
        """Counts `peak_used` and `peak_reserved` from what is in use now."""
        native_function("reset_peak")(self.object)

    def open_tally(self) -> int:
        """Counts from now on; the number of the tally.  `symalloc.pool.statistics` is the usual way."""
        return int(native_function("open_tally")(self.object))

    def read_tally(self, number: int) -> Tally:
        """What that tally has counted so far."""
        return read_tally(native_function("read_tally")(self.object, number))

    def close_tally(self, number: int) -> None:
        """Counts no more for that tally."""
        native_function("close_tally")(self.object, number)

    def start_recording(self) -> None:
        """Records what is allocated and freed from now on, by any thread; forgets what was recorded."""
        native_function("record")(self.object, True)

    def stop_recording(self) -> Trace:
        """Records no more; what was recorded, with times and tags.  What was live before is not in it.

        Blocks that were allocated in a `call` and outlive it escape, and those that were said to.
        """
        native_function("record")(self.object, False)
        return recorded_trace(*native_function("recorded")(self.object))

    @contextmanager
    def call(self) -> Iterator[None]:
        """What this thread allocates within belongs to one call, in what is recorded."""
        number = native_function("begin_call")(self.object)
        try:
            yield
        finally:
            native_function("end_call")(self.object, number)

    def close(self) -> tuple[Holding, ...]:
        """Gives free memory back, forgets all callbacks and refuses further allocations; what leaks.

        Warns with LeakWarning where something does.  Blocks that are live stay so, and may be freed.  A
        virtual machine that has the pool may still allocate.
        """
        if self._alloc is _refused:
            return self.leaks()
        self._alloc = self._empty = _refused
        native_function("clear_callbacks")(self.object)
        native_function("trim")(self.object)
        leaks = self.leaks()
        if leaks:
            warnings.warn(leak_text(leaks), LeakWarning, stacklevel=2)
        return leaks

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the pool."""
        self.close()


def _answers(callback: OomCallback) -> Callable[[int, int, str], bool]:
    return lambda nbytes, tries, why: bool(callback(nbytes, tries, why))


def _refused(*_: object) -> NoReturn:
    raise PoolUsageError("the pool is closed")
