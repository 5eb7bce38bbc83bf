"""Budgets within a pool: what the threads in a session allocate is charged to it."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from symalloc.native.native_functions import pool_functions
from symalloc.pool.core.pool_errors import PoolUsageError
from symalloc.pool.core.pool_options import read_bytes, require_name
from symalloc.pool.observing.leaks import Holding

if TYPE_CHECKING:
    from symalloc.native.native_functions import PoolObject


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
        self._object = pool_functions.open_session(pool, name, _limit(limit))

    @property
    def limit(self) -> int | None:
        """Bytes that are charged at most, None: only the pool's limit counts.  It may be changed at any time;
        what is charged beyond a lower limit stays.
        """
        limit = int(pool_functions.read_session(self._object)[0])
        return None if limit < 0 else limit

    @limit.setter
    def limit(self, limit: float | str | None) -> None:
        pool_functions.set_session_limit(self._object, _limit(limit))

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the session with this thread; raises PoolUsageError where it is not in it."""
        pool_functions.leave_session(self._object)


def _limit(limit: float | str | None) -> int:
    return -1 if limit is None else read_bytes(limit, "limit")
