"""Sessions of a pool, and admission: a call begins once all that it may take is there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition, get_ident
from time import monotonic
from typing import TYPE_CHECKING, Self

from symalloc.arguments import require_bytes
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

    __slots__ = ("_object", "name")

    def __init__(self, pool: PoolObject, name: str, limit: float | str | None) -> None:
        self.name = require_name(name, "the name of a session")
        if not name:
            raise PoolUsageError("the name of a session is empty")
        self._object = pool_functions.open_session(pool, name, native_limit(limit))

    @property
    def limit(self) -> int | None:
        """Bytes that are charged at most, None: only the pool's limit counts.  It may be changed at any time;
        what is charged beyond a lower limit stays.
        """
        limit = int(pool_functions.read_session(self._object)[0])
        return None if limit < 0 else limit

    @limit.setter
    def limit(self, limit: float | str | None) -> None:
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


class Admissions:
    """The calls that are admitted to one pool, by thread, and those that wait, in order.

    A banker's check: an admitted call may take all that it claims at any moment and so never waits for
    another; none holds anything while it waits.  Therefore all come to an end.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._admitted: dict[int, tuple[PoolSession, int]] = {}
        self._waiting: deque[object] = deque()

    @contextmanager
    def admit(self, pool: NativePool, session: PoolSession, timeout: float) -> Iterator[PoolSession]:
        """Wait until the limit of `session` fits, then be in it."""
        me, claim = get_ident(), -(-(session.limit or 0) // pool.options.page) * pool.options.page
        limit = pool_functions.limit(pool.object)
        if claim > limit:
            raise OutOfMemoryError(
                f"`{session.name}` claims {claim} bytes in whole pages, more than the limit of {limit}"
            )
        with self._changed:
            if me in self._admitted:
                inside = self._admitted[me][0].name
                raise PoolUsageError(
                    f"this thread is admitted already, in `{inside}`: it would wait for itself"
                )
            self._wait(pool, session, claim, timeout)
            self._admitted[me] = session, claim
        try:
            with session:
                yield session
        finally:
            with self._changed:
                del self._admitted[me]
                self._changed.notify_all()

    def _wait(self, pool: NativePool, session: PoolSession, claim: int, timeout: float) -> None:
        turn, until = object(), monotonic() + timeout
        self._waiting.append(turn)
        try:
            while self._waiting[0] is not turn or not self._fits(pool, claim):
                left = until - monotonic()
                if left <= 0:
                    claimed = sum(each for _, each in self._admitted.values())
                    limit = pool_functions.limit(pool.object)
                    raise OutOfMemoryError(
                        f"`{session.name}` has waited {timeout:g} s for {claim} bytes: {len(self._admitted)} "
                        f"calls claim {claimed}, and others hold {self._besides(pool)}, of {limit}"
                    )
                self._changed.wait(min(left, LOOKED_AGAIN))
        finally:
            self._waiting.remove(turn)
            self._changed.notify_all()

    def _fits(self, pool: NativePool, claim: int) -> bool:
        claimed = claim + sum(each for _, each in self._admitted.values())
        return claimed + self._besides(pool) <= pool_functions.limit(pool.object)

    def _besides(self, pool: NativePool) -> int:
        """The bytes that no admitted call has taken, while none of them takes or frees any."""
        before = None
        while before != (now := [session.statistics() for session, _ in self._admitted.values()]):
            before, live = now, pool.statistics().live
        return max(live - sum(each.live for each in now), 0)
