"""A pool that calls run on: what each takes of it, the record, and guard mode's findings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from symalloc.pool.errors import PoolError
from symalloc.pool.native import NativePool
from symalloc.pool.trace import trace_as_json
from symalloc.relax.run_result import PoolRequest, PoolUse, RefusedError, RunError

__all__ = ["Tally", "made", "recorded"]


@dataclass(slots=True)
class Tally:
    """Sums up what calls take of a pool."""

    pool: NativePool
    calls: int = 0
    allocations: int = 0
    peak_live: int = 0
    peak_reserved: int = 0
    commits: int = 0
    decommits: int = 0
    larger: list[Tally] = field(default_factory=list)  # what counts the same calls, and others

    @contextmanager
    def call(self) -> Iterator[None]:
        """Counts one call, which runs within; raises RefusedError where guard mode finds damage behind it."""
        before = self.pool.statistics()
        self.pool.reset_peak()
        with self.pool.call():
            yield
        try:
            self.pool.check()
        except PoolError as damage:
            raise RefusedError(str(damage)) from None
        after = self.pool.statistics()
        for tally in (self, *self.larger):
            tally.calls += 1
            tally.allocations += after.allocs - before.allocs
            tally.commits += after.commits - before.commits
            tally.decommits += after.decommits - before.decommits
            tally.peak_live = max(tally.peak_live, after.peak_used)
            tally.peak_reserved = max(tally.peak_reserved, after.peak_reserved)

    def use(self) -> PoolUse:
        """What was counted."""
        return PoolUse(
            calls=self.calls,
            allocations=self.allocations,
            peak_live=self.peak_live,
            peak_reserved=self.peak_reserved,
            commits=self.commits,
            decommits=self.decommits,
        )


def made(asked: PoolRequest) -> NativePool:
    """The pool, which records where that is asked for; raises RunError."""
    try:
        pool = NativePool(limit=asked.limit, guard=asked.guard)
    except PoolError as error:
        raise RunError(str(error)) from None
    if asked.trace:
        pool.start_recording()
    return pool


def recorded(pool: NativePool, asked: PoolRequest) -> bytes | None:
    """The record as JSON, where one was asked for."""
    return trace_as_json(pool.stop_recording()) if asked.trace else None
