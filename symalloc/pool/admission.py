"""Admission to a pool: a call begins once all that it may take is there, whatever the others still take."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, get_ident
from time import monotonic
from typing import Any, Protocol, Self, TypeVar

from symalloc.native.native_functions import pool_functions
from symalloc.pool.native_pool import NativePool
from symalloc.pool.pool_errors import OutOfMemoryError, PoolUsageError

Session = TypeVar("Session", bound="ClaimedBudget")
LOOKED_AGAIN = 0.01  # seconds: memory that nobody claims goes without a word


class ClaimedBudget(Protocol):
    """A session of a pool, as far as admission uses it; `PoolSession` documents it."""

    name: str

    @property
    def limit(self) -> int | None:
        """Bytes."""

    def statistics(self) -> Any:
        """Its counters."""

    def __enter__(self) -> Self:
        """Enter it."""

    def __exit__(self, *_: Any) -> None:
        """Leave it."""


class Admissions:
    """The calls that are admitted to one pool, by thread, and those that wait, in order.

    A banker's check: an admitted call may take all that it claims at any moment and so never waits for
    another; none holds anything while it waits.  Therefore all come to an end.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._admitted: dict[int, tuple[ClaimedBudget, int]] = {}
        self._waiting: deque[object] = deque()

    @contextmanager
    def admit(self, pool: NativePool, session: Session, timeout: float) -> Iterator[Session]:
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

    def _wait(self, pool: NativePool, session: Session, claim: int, timeout: float) -> None:
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
        held: int = sum(each.live for each in now)
        return max(live - held, 0)
