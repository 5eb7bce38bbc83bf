"""A pool with limits that move, callbacks, sessions, leak reports and snapshots: `symalloc.Pool`."""

from __future__ import annotations

import sys
import traceback
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from mmap import PAGESIZE
from threading import Condition, Lock, local
from time import monotonic
from typing import TYPE_CHECKING, NoReturn, Self, TypeAlias

from symalloc.errors import require_bytes, require_whole, shown
from symalloc.native.native_functions import pool_functions
from symalloc.pool.native_pool import OOM, NativePool, PoolStatistics, carrying_interrupts
from symalloc.pool.pool_errors import OutOfMemoryError, PoolUsageError, checked
from symalloc.pool.pool_options import MOST, read_seconds, require_name
from symalloc.pool.trace import ALL_EVENTS, MOST_EVENTS, Recording
from symalloc.shown import Shown

if TYPE_CHECKING:
    from symalloc.native.native_functions import PoolObject
    from symalloc.pool.native_pool import CallbackTable

_ADMISSIONS = Lock()  # of making the gate of a pool


class InstrumentedPool(Shown, NativePool):
    """A pool of real memory on the CPU that can be watched; `NativePool` documents the arguments.

    Callbacks are called without any lock of the pool, by the thread whose allocation or free passes the mark,
    and may use the pool.  This object keeps them until it is closed, and no longer than it lives itself: one
    that refers to the pool does not keep it alive.  `relax.VirtualMachine` keeps the object of its pool.
    """

    __slots__ = ("_admissions",)

    def __repr__(self) -> str:
        now, bound = self.statistics(), "no limit" if self.limit is None else f"limit {self.limit} B"
        return f"<Pool: {now.live} B live, {now.reserved} B reserved, {bound}>"

    @property
    def limit(self) -> int | None:
        """Bytes that the pool may back at most.  It may be changed at any time, with None to what memory
        there is; memory that is in use beyond a lower limit stays.
        """
        return pool_functions.limit(self.object)

    @limit.setter
    def limit(self, limit: int | None) -> None:
        pool_functions.set_limit(self.object, native_limit(limit))

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
        retries = _whole("the number of retries", retries)
        if callback is None:
            self._callbacks.remove(OOM)
            pool_functions.clear_on_oom(self.object)
        else:
            checked_callback(callback)
            _, call = self._callbacks.add(lambda *given: bool(callback(*given)), False, number=OOM)
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

    def admit(
        self, nbytes: float | str, name: str = "call", *, blocks: int = 1, timeout: float | None = None
    ) -> AbstractContextManager[PoolSession]:
        """Wait until `nbytes` in at most `blocks` blocks at a time fit under the limit beside what all
        admitted calls may take, for `with`; within it the thread is in a session of so much.

            at = planned.at(n=128)
            with pool.admit(at.call + at.table, blocks=at.blocks):
                machine["main"](x)

        The limit refuses an admitted call nothing, whatever other admitted calls do, so that none waits for
        another.  The session counts pages of the system, each block its own.  Those that wait are served in
        their order.  Raises OutOfMemoryError where it never fits, or not within `timeout` seconds (None: any
        time), and PoolUsageError in a thread that is admitted already.
        """
        seconds = inf if timeout is None else read_seconds("timeout", timeout)
        claim = min(claimed(checked(require_bytes, "nbytes", nbytes), _whole("blocks", blocks, 1)), MOST)
        with _ADMISSIONS:
            gate = self._admissions = getattr(self, "_admissions", None) or Admissions()
        return gate.admit(self, PoolSession(self.object, name, claim, admitted=True), seconds)

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
        layout = array("q", bytes(pool_functions.layout(self.object)))
        middle = 2 + 2 * layout[0]  # behind the free runs
        return PoolSnapshot(
            free=tuple(sorted(_pairs(layout[2:middle]))),
            backed=tuple(_pairs(layout[middle:])),
            blocks=live_blocks(pool_functions.holders(self.object)),
            statistics=self.statistics(),
        )

    def reset_peak(self) -> None:
        """Restart `peak_used` and `peak_reserved` from what is in use now."""
        pool_functions.reset_peak(self.object)

    def record(self, most: int = MOST_EVENTS) -> Recording:
        """Record allocations and frees of any thread from now on; forget earlier ones.

        The last `most` events are kept, in 40 bytes each; the recording says how many were dropped, and so
        does `meta["dropped"]` of its trace.  Blocks that were live before are not in that.  Raises
        PoolUsageError.
        """
        return Recording(self.object, _whole("the number of events", most, 1, ALL_EVENTS))

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

    def __exit__(self, *_: object) -> None:
        """Close the pool."""
        self.close()


def _refuse(*_: object) -> NoReturn:
    raise PoolUsageError("the pool is closed")


Pool = InstrumentedPool  # its public name


# -- watermarks of the bytes in use ------------------------------------------------------------------------


WatermarkCallback = Callable[[int], object]
OomCallback = Callable[[int, int, str], bool]
Level = int | float | Fraction  # bytes (an int), or a share of the limit from 0 to 1


class Watermark:
    """A callback at a number of bytes in use."""

    __slots__ = ("_callbacks", "_key", "_number", "_pool")

    def __init__(self, pool: PoolObject, number: int, callbacks: CallbackTable, key: int) -> None:
        self._pool, self._number = pool, number
        self._callbacks, self._key = callbacks, key

    def cancel(self) -> None:
        """Cancel the callback.  A concurrent call may still be running when this returns."""
        pool_functions.remove_watermark(self._pool, self._number)
        self._callbacks.remove(self._key)


def watermark_bounds(high: bool, at: Level, rearm: int | None, limit: int | None) -> tuple[int, int]:
    """A watermark and the level that rearms it, in bytes; by default nine tenths of a high mark, eleven
    tenths of a low one.  Raises PoolUsageError.
    """
    mark = _bytes(at, limit)
    if rearm is None:
        level = mark * 9 // 10 if high else mark + max(mark // 10, 1)
    else:
        level = _whole("the level that rearms a watermark", rearm)
    if not (0 <= level < mark if high else level > mark):
        kind, side = ("high", "below") if high else ("low", "above")
        raise PoolUsageError(f"a {kind} watermark of {mark} bytes rearms {side} itself, not at {level}")
    return mark, level


def printing_errors(callback: WatermarkCallback) -> WatermarkCallback:
    """`callback`, but its exceptions are printed to the standard error stream and go no further."""

    def call(in_use: int) -> None:
        try:
            callback(in_use)
        except Exception:
            print("symalloc: a callback at a watermark failed; the pool goes on:", file=sys.stderr)
            traceback.print_exc()

    return call


def checked_callback(callback: object) -> None:
    """Raise PoolUsageError where `callback` cannot be called."""
    if not callable(callback):
        raise PoolUsageError(f"a callback is a function, not {shown(callback)}")


def _bytes(at: Level, limit: int | None) -> int:
    if not isinstance(at, float | Fraction) or not 0 <= at <= 1:
        return _whole("a watermark (bytes, or a share of the limit from 0 to 1)", at)
    if limit is None:
        raise PoolUsageError("a watermark that is a share of the limit needs a pool with a limit")
    return int(at * limit)


def _whole(name: str, value: object, least: int = 0, most: int = MOST) -> int:
    return checked(require_whole, name, value, least, most)


# -- the holders of memory, by tag -------------------------------------------------------------------------


SHOWN = 5  # tags


class LeakWarning(RuntimeWarning):
    """A pool is closed while blocks of it are live; the text says whose."""


def holdings(known: Iterable[tuple[str, int]], now: PoolStatistics) -> tuple[Holding, ...]:
    """The live blocks by tag, the most bytes first.  `known` are tag and bytes of single blocks; other blocks
    that `now` counts have no tag.
    """
    blocks: dict[str, int] = {}
    nbytes: dict[str, int] = {}
    for tag, size in known:
        blocks[tag] = blocks.get(tag, 0) + 1
        nbytes[tag] = nbytes.get(tag, 0) + size
    tagged = [Holding(tag=tag, blocks=count, nbytes=nbytes[tag]) for tag, count in blocks.items() if tag]
    rest = Holding(
        tag="",
        blocks=now.allocs - now.frees - sum(h.blocks for h in tagged),
        nbytes=now.live - sum(h.nbytes for h in tagged),
    )
    found = [*tagged, rest] if rest.blocks > 0 else tagged
    return tuple(sorted(found, key=lambda h: (-h.nbytes, h.tag)))


def leak_text(leaks: Sequence[Holding]) -> str:
    """One line: how much is live, and whose it is."""
    total, blocks = sum(h.nbytes for h in leaks), sum(h.blocks for h in leaks)
    shown = ", ".join(_share(h) for h in leaks[:SHOWN])
    more = f", {len(leaks) - SHOWN} tags more" if len(leaks) > SHOWN else ""
    return f"{_amount(total, blocks)} of the pool are not freed: {shown}{more}"


def _share(holding: Holding) -> str:
    name = f"`{holding.tag}`" if holding.tag else "without a tag"
    return f"{name} {_amount(holding.nbytes, holding.blocks)}"


def _amount(nbytes: int, blocks: int) -> str:
    return f"{nbytes} bytes in {blocks} block{'s' * (blocks != 1)}"


# -- the layout of a pool at one moment --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBlock:
    """A live block that has a handle or a tag; `pointer` is its machine address."""

    tag: str
    pointer: int
    nbytes: int


Intervals: TypeAlias = tuple[tuple[int, int], ...]
"""[start, end) in bytes of the address space, lowest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """A pool at one moment: what is free, and what pages are backed.  Other threads may have moved on between
    the parts.
    """

    statistics: PoolStatistics
    free: Intervals
    backed: Intervals
    blocks: tuple[LiveBlock, ...]


def live_blocks(holders: Sequence[str | int]) -> tuple[LiveBlock, ...]:
    """Decode the answer of the native function `holders`."""
    flat = list(holders)
    return tuple(
        LiveBlock(tag=str(tag), pointer=int(pointer), nbytes=int(nbytes))
        for tag, pointer, nbytes in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    )


def _pairs(numbers: array[int]) -> Iterator[tuple[int, int]]:
    return zip(numbers[::2], numbers[1::2], strict=True)


# -- sessions, and admission: a call begins once all that it may take is there -----------------------------


LOOKED_AGAIN = 0.01  # seconds: memory that nobody claims goes without a word


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The live blocks under one tag, "" for those without one; `nbytes` is what was asked for."""

    tag: str
    blocks: int
    nbytes: int


def native_limit(limit: float | str | None) -> int:
    """The bytes of a limit, -1 for none; raises PoolUsageError."""
    return -1 if limit is None else checked(require_bytes, "`limit`", limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatistics:
    """A session at one moment; sizes are bytes asked for.

    `live` bytes are charged to it now, `peak_live` were at most.  `allocs` and `frees` count the blocks that
    are or were charged to it, `refused` the allocations that failed in it, for its limit or another.
    """

    live: int
    peak_live: int
    allocs: int
    frees: int
    refused: int


class PoolSession:
    """A budget within a pool, which `InstrumentedPool.session` makes.

        with pool.session("request 17", limit="1GiB") as session:
            machine["main"](x)
        print(session.statistics())

    What a thread allocates within the `with` is charged to the session until it is freed, by whatever thread,
    within or later.  Any number of threads may be in it, and enter it again.  A session that is made within
    another is a part of it: what is charged to the inner one is charged to the outer one, too, in every
    thread.  A thread in several is charged to each of them once.
    """

    __slots__ = ("_admitted", "_object", "name")

    def __init__(
        self, pool: PoolObject, name: str, limit: float | str | None, *, admitted: bool = False
    ) -> None:
        self.name = require_name(name, "the name of a session")
        if not name:
            raise PoolUsageError("the name of a session is empty")
        self._object = pool_functions.open_session(pool, name, native_limit(limit), admitted)
        self._admitted = admitted

    @property
    def limit(self) -> int | None:
        """Bytes that are charged at most, None: only the pool's limit counts.  It may be changed at any time;
        what is charged beyond a lower limit stays.
        """
        limit = int(pool_functions.read_session(self._object)[0])
        return None if limit < 0 else limit

    @limit.setter
    def limit(self, limit: float | str | None) -> None:
        if self._admitted:
            raise PoolUsageError(f"`{self.name}` was admitted with its limit, which stays")
        pool_functions.set_session_limit(self._object, native_limit(limit))

    def statistics(self) -> SessionStatistics:
        """The counters of the session, now; they may be read when nobody is in it, and when the pool is
        closed.
        """
        _, live, peak_live, allocs, frees, refused = map(int, pool_functions.read_session(self._object))
        return SessionStatistics(live=live, peak_live=peak_live, allocs=allocs, frees=frees, refused=refused)

    def holdings(self) -> tuple[Holding, ...]:
        """The live blocks that are charged to it by tag, the most bytes first."""
        flat = list(pool_functions.session_holdings(self._object))
        found = [
            Holding(tag=str(tag), blocks=int(blocks), nbytes=int(nbytes))
            for tag, blocks, nbytes in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        ]
        return tuple(sorted(found, key=lambda h: (-h.nbytes, h.tag)))

    def __enter__(self) -> Self:
        """Enter the session with this thread."""
        pool_functions.enter_session(self._object)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the session with this thread; raises PoolUsageError where it is not in it."""
        pool_functions.leave_session(self._object)


def claimed(nbytes: int, blocks: int) -> int:
    """The bytes of the pages that `blocks` blocks of `nbytes` bytes together take at most, each its own."""
    return (max(nbytes - blocks, 0) // PAGESIZE + blocks) * PAGESIZE


class Admissions:
    """The calls that are admitted to one pool, and those that wait, in order.

    A banker's check: an admitted call may take all that it claims at any moment and so never waits for
    another.  Those that hold nothing while they wait come to an end therefore.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._admitted: dict[PoolSession, int] = {}  # what each claims
        self._waiting: dict[PoolSession, None] = {}
        self._thread = local()

    @contextmanager
    def admit(self, pool: NativePool, session: PoolSession, timeout: float) -> Iterator[PoolSession]:
        """Wait until the limit of `session` fits, then be in it."""
        inside: str | None = getattr(self._thread, "inside", None)
        if inside is not None:
            raise PoolUsageError(f"this thread is admitted already, in `{inside}`: it would wait for itself")
        try:
            with self._changed:
                self._admitted[session] = self._await_room(pool, session, timeout)
            self._thread.inside = session.name
            with session:
                yield session
        finally:
            self._thread.inside = None
            with self._changed:
                self._waiting.pop(session, None)
                self._admitted.pop(session, None)
                self._changed.notify_all()

    def _await_room(self, pool: NativePool, session: PoolSession, timeout: float) -> int:
        """The claim of `session`, once it fits and nobody is in front."""
        claim, until = session.limit or 0, monotonic() + timeout
        self._waiting[session] = None
        while True:
            if pool.closed:
                raise PoolUsageError("the pool is closed")
            limit, others = pool_functions.limit(pool.object), sum(self._admitted.values())
            if claim > limit:
                raise OutOfMemoryError(
                    f"`{session.name}` claims {claim} bytes in whole pages, more than the limit of {limit}"
                )
            if next(iter(self._waiting)) is session and claim + others + self._besides(pool) <= limit:
                del self._waiting[session]
                self._changed.notify_all()
                return claim
            left = until - monotonic()
            if left <= 0:
                raise OutOfMemoryError(
                    f"`{session.name}` has waited {timeout:g} s for {claim} bytes: {len(self._admitted)} "
                    f"calls claim {others}, and others hold {self._besides(pool)}, of {limit}"
                )
            self._changed.wait(min(left, LOOKED_AGAIN))

    def _besides(self, pool: NativePool) -> int:
        """The bytes of the pages that blocks of no admitted call touch at most.

        A block of n bytes takes up to n + 63, and begins in a page at least 64 bytes before its end.
        """
        before = None
        while before != (now := [session.statistics() for session in self._admitted]):
            before, counted = now, pool.statistics()  # no admitted call has taken or freed anything meanwhile
        nbytes = counted.live - sum(each.live for each in now)
        blocks = counted.allocs - counted.frees - sum(each.allocs - each.frees for each in now)
        return (nbytes + blocks * (2 * PAGESIZE - 65)) // PAGESIZE * PAGESIZE
