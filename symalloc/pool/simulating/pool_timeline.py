"""A trace replayed on the reference pool, event by event: the contents of exports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from symalloc.pool.core.pool_errors import OutOfMemoryError
from symalloc.pool.core.pool_options import PoolOptions
from symalloc.pool.core.pool_statistics import PoolStatistics
from symalloc.pool.core.reference_pool import ReferencePool
from symalloc.pool.simulating.trace import Alloc, CallBegin, CallEnd, Free, Trace

MICROSECOND = 1000  # nanoseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRun:
    """PageTable [start, end), addresses in bytes, are backed from now on, or no longer are."""

    start: int
    end: int
    backed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePoint:
    """The pool after one event; sizes in bytes.  `runs` are the pages that it took and gave back for it."""

    time: int  # nanoseconds
    block: int
    allocates: bool
    live: int
    used: int
    reserved: int
    runs: tuple[PageRun, ...]


@dataclass(slots=True, kw_only=True)
class Lifespan:
    """A block, or a call: from when to when, in nanoseconds; `end` is None where it has none."""

    number: int
    begin: int
    end: int | None = None
    address: int = 0
    nbytes: int = 0
    call: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTimeline:
    """The events of a trace, in order; an allocation that does not fit ends it, and `failed` says how.

    Where the trace has no times, its events are a microsecond apart.
    """

    trace: Trace
    moments: tuple[TimelinePoint, ...]
    blocks: dict[int, Lifespan]
    calls: dict[int, Lifespan]
    statistics: PoolStatistics
    pages: tuple[PageRun, ...]  # backed at the end
    end: int
    failed: str | None = None

    def name(self, block: int) -> str:
        """The name of a block: its tag, else its number."""
        return self.trace.tags.get(block) or f"block {block}"


def timeline_of(trace: Trace, options: PoolOptions | None = None) -> PoolTimeline:
    """`trace` on the reference pool with these options."""
    return _TimelineBuilder(trace, options or PoolOptions()).timeline()


class _TimelineBuilder:
    def __init__(self, trace: Trace, options: PoolOptions) -> None:
        self.trace, self.pool = trace, ReferencePool(options)
        self.capacity = options.range_capacity
        self.blocks: dict[int, Lifespan] = {}
        self.calls: dict[int, Lifespan] = {}
        self.pages = [b"" for _ in self.pool.pages]
        self.counted = [(0, 0) for _ in self.pool.pages]

    def timeline(self) -> PoolTimeline:
        moments: list[TimelinePoint] = []
        failed = None
        times = self.trace.times or range(0, len(self.trace.events) * MICROSECOND, MICROSECOND)
        for index, (event, time) in enumerate(zip(self.trace.events, times, strict=True)):
            try:
                moment = self._step(event, time)
            except OutOfMemoryError as error:
                failed = f"event {index}: {error}"
                break
            if moment is not None:
                moments.append(moment)
        return PoolTimeline(
            trace=self.trace,
            moments=tuple(moments),
            blocks=self.blocks,
            calls=self.calls,
            statistics=self.pool.statistics(),
            pages=tuple(self._backed()),
            end=(times[-1] if times else 0) + MICROSECOND,
            failed=failed,
        )

    def _step(self, event: Alloc | Free | CallBegin | CallEnd, time: int) -> TimelinePoint | None:
        match event:
            case CallBegin(call=call):
                self.calls[call] = Lifespan(number=call, begin=time)
                return None
            case CallEnd(call=call):
                self.calls[call].end = time
                return None
            case Alloc(block=block, nbytes=nbytes, call=call):
                address = self.pool.alloc(nbytes, escapes=block in self.trace.escape)
                self.blocks[block] = Lifespan(
                    number=block, begin=time, address=address, nbytes=nbytes, call=call
                )
            case Free(block=block):
                self.blocks[block].end = time
                self.pool.free(self.blocks[block].address)
        return TimelinePoint(
            time=time,
            block=block,
            allocates=isinstance(event, Alloc),
            live=self.pool.live,
            used=self.pool.used,
            reserved=self.pool.reserved,
            runs=tuple(self._changed()),
        )

    def _changed(self) -> Iterator[PageRun]:
        """The runs of pages backed or given back since the last event; those given back come first."""
        runs: list[PageRun] = []
        for which, pages in enumerate(self.pool.pages):
            counted = pages.commits, pages.decommits
            if counted != self.counted[which]:
                before, self.pages[which], self.counted[which] = self.pages[which], pages.backed(), counted
                runs += self._differences(which, pages.size, before, self.pages[which])
        yield from sorted(runs, key=lambda run: run.backed)

    def _differences(self, which: int, page: int, before: bytes, after: bytes) -> Iterator[PageRun]:
        before = before.ljust(len(after), b"\0")
        differ = int.from_bytes(before) ^ int.from_bytes(after)
        base = which * self.capacity
        for run in re.finditer(rb"\x01+", differ.to_bytes(len(after))):
            for piece in re.finditer(rb"\x01+|\x00+", after[run.start() : run.end()]):
                start, end = run.start() + piece.start(), run.start() + piece.end()
                yield PageRun(
                    start=base + start * page, end=base + end * page, backed=piece[0].startswith(b"\1")
                )

    def _backed(self) -> Iterator[PageRun]:
        for which, pages in enumerate(self.pool.pages):
            yield from self._differences(which, pages.size, b"", pages.backed())
