"""Sessions of a pool, and admission: a call begins once all that it may take is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import PAGESIZE
from threading import Condition, local
from time import monotonic
from typing import TYPE_CHECKING, Self

from symalloc.errors import require_bytes
from symalloc.native.native_functions import pool_functions
from symalloc.pool.native_pool import NativePool
from symalloc.pool.pool_errors import OutOfMemoryError, PoolUsageError, checked
from symalloc.pool.pool_options import require_name

if TYPE_CHECKING:
    from symalloc.native.native_functions import PoolObject

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
