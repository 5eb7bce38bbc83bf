"""A pool that calls run on: what each takes of it, the record, and guard mode's findings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from symalloc.errors import RunError
from symalloc.planner.memory_report.runs import PoolUse
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import PoolError
from symalloc.pool.trace import ALL_EVENTS, Alloc, CallBegin, Free, Trace
from symalloc.relax.files.requests import PoolRequest, RefusedError


@dataclass(slots=True)
class PoolMeter:
    """Sums up what calls take of a pool.

    The first call is recorded, for what is live in it at most; with `traced` somebody else records all, and
    says so by `lived`.
    """

    pool: InstrumentedPool
    traced: bool = False
    use: PoolUse = field(default_factory=PoolUse)
    larger: PoolMeter | None = None  # counts the same calls, and others

    @contextmanager
    def call(self) -> Iterator[None]:
        """Counts one call, which runs within; raises RefusedError where guard mode finds damage behind it."""
        before = self.pool.statistics()
        self.pool.reset_peak()
        record = self.use.calls == 0 and not self.traced
        if record:
            self.pool.start_recording(ALL_EVENTS)
        with self.pool.call():
            yield
        if record:
            self.lived(peaks(self.pool.stop_recording(), before.live)[-1])
        try:
            self.pool.check()
        except PoolError as damage:
            raise RefusedError(str(damage)) from None
        after = self.pool.statistics()
        self._add(
            PoolUse(
                calls=1,
                allocations=after.allocs - before.allocs,
                peak_reserved=after.peak_reserved,
                commits=after.commits - before.commits,
                decommits=after.decommits - before.decommits,
            )
        )

    def lived(self, nbytes: int) -> None:
        """Says that a call had `nbytes` live at most."""
        self._add(PoolUse(peak_live=nbytes))

    def _add(self, use: PoolUse) -> None:
        self.use += use
        if self.larger is not None:
            self.larger._add(use)


def make_pool(asked: PoolRequest) -> InstrumentedPool:
    """The pool, which records where that is asked for; raises RunError."""
    try:
        pool = InstrumentedPool(limit=asked.limit, guard=asked.guard)
    except PoolError as error:
        raise RunError(str(error)) from None
    if asked.trace:
        pool.start_recording(ALL_EVENTS)
    return pool


def peaks(trace: Trace, before: int = 0) -> list[int]:
    """The most bytes that are live within each call, `before` being so in front of the first."""
    live, sizes, found = before, dict[int, int](), list[int]()
    for event in trace.events:
        match event:
            case CallBegin():
                found.append(live)
            case Alloc(block=block, nbytes=nbytes):
                sizes[block] = nbytes
                live += nbytes
                found[-1:] = [max(live, *found[-1:])] if found else []
            case Free(block=block):
                live -= sizes.pop(block, 0)
    return found
