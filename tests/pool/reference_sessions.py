"""The reference pool with sessions: `InstrumentedPool` must charge and refuse alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from symalloc.pool.instrumented_pool import SessionStatistics
from symalloc.pool.pool_errors import OutOfMemoryError
from symalloc.pool.pool_options import ALIGNMENT, PoolOptions
from tests.pool.reference.reference_pool import ReferencePool


class ReferenceSession:
    """What is charged to one session."""

    def __init__(self, name: str, limit: int | None, parent: ReferenceSession | None) -> None:
        self.name, self.limit, self.parent = name, limit, parent
        self.live = self.peak_live = self.allocs = self.frees = self.refused = 0

    def statistics(self) -> SessionStatistics:
        """As `PoolSession.statistics`."""
        return SessionStatistics(
            live=self.live,
            peak_live=self.peak_live,
            allocs=self.allocs,
            frees=self.frees,
            refused=self.refused,
        )

    @property
    def family(self) -> list[ReferenceSession]:
        """The session and those it is within, innermost first."""
        return [self, *(self.parent.family if self.parent else [])]


class ReferencePoolWithSessions(ReferencePool):
    """A `ReferencePool` that charges sessions; `InstrumentedPool` documents the methods.  For one thread."""

    def __init__(self, options: PoolOptions | None = None) -> None:
        super().__init__(options)
        self._entered: list[ReferenceSession] = []
        self._charged: dict[int, tuple[list[ReferenceSession], int]] = {}

    def session(self, name: str, limit: int | None = None) -> ReferenceSession:
        """A session within the one that is entered."""
        return ReferenceSession(name, limit, self._entered[-1] if self._entered else None)

    @contextmanager
    def within(self, session: ReferenceSession) -> Iterator[None]:
        """Charges what is allocated meanwhile."""
        self._entered.append(session)
        try:
            yield
        finally:
            self._entered.pop()

    def alloc(self, nbytes: int, *, align: int = ALIGNMENT, escapes: bool = False) -> int:
        """As `ReferencePool.alloc`; raises OutOfMemoryError beyond a budget, too."""
        charge = list(dict.fromkeys(s for entered in self._entered for s in entered.family))
        try:
            for session in charge:
                if session.limit is not None and session.live + nbytes > session.limit:
                    self.refused += 1
                    raise OutOfMemoryError(_text(session, nbytes))
            address = super().alloc(nbytes, align=align, escapes=escapes)
        except OutOfMemoryError:
            for session in charge:
                session.refused += 1
            raise
        self._charged[address] = charge, nbytes
        for session in charge:
            session.allocs += 1
            session.live += nbytes
            session.peak_live = max(session.peak_live, session.live)
        return address

    def free(self, address: int) -> None:
        """As `ReferencePool.free`."""
        super().free(address)
        charge, nbytes = self._charged.pop(address)
        for session in charge:
            session.frees += 1
            session.live -= nbytes


def _text(session: ReferenceSession, nbytes: int) -> str:
    assert session.limit is not None
    lacking = session.live + nbytes - session.limit
    return (
        f"{_count(nbytes)} do not fit into the session `{session.name}`, whose limit is {session.limit}: "
        f"{session.live} are held\n  help: raise the limit of the session by {_count(lacking)}, "
        "or free as much, or run at smaller shapes"
    )


def _count(nbytes: int) -> str:
    return f"{nbytes} byte" if nbytes == 1 else f"{nbytes} bytes"
