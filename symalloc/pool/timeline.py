"""A trace replayed on the reference, step by step: what exports show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from symalloc.pool.counters import Statistics
from symalloc.pool.errors import OutOfMemoryError
from symalloc.pool.policy import Options, PagedPool
from symalloc.pool.trace import Alloc, CallBegin, CallEnd, Free, Trace

__all__ = ["Life", "Moment", "PageRun", "Timeline", "observe"]

MICROSECOND = 1000  # nanoseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRun:
    """Pages [start, end), addresses in bytes, are backed from now on, or no longer are."""

    start: int
    end: int
    backed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The pool after one event; sizes in bytes.  `runs` are the pages that it took and gave back for it."""

    time: int  # nanoseconds
    block: int
    allocates: bool
    live: int
    used: int
    reserved: int
    runs: tuple[PageRun, ...]


@dataclass(slots=True, kw_only=True)
class Life:
    """A block, or a call: from when to when, in nanoseconds; `end` is None where it has none."""

    number: int
    begin: int
    end: int | None = None
    address: int = 0
    nbytes: int = 0
    call: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What happened in the order of the trace; an allocation that does not fit ends it, `failed` says how.

    Where the trace has no times, its events are a microsecond apart.
    """

    trace: Trace
    moments: tuple[Moment, ...]
    blocks: dict[int, Life]
    calls: dict[int, Life]
    statistics: Statistics
    pages: tuple[PageRun, ...]  # backed at the end
    end: int
    failed: str | None = None

    def name(self, block: int) -> str:
        """What a block is called: its tag, else its number."""
        return self.trace.tags.get(block) or f"block {block}"


def observe(trace: Trace, options: Options | None = None) -> Timeline:
    """`trace` on the reference pool with these options."""
    return _Observer(trace, options or Options()).timeline()


class _Observer:
    def __init__(self, trace: Trace, options: Options) -> None:
        self.trace, self.pool = trace, PagedPool(options)
        self.capacity = options.capacity
        self.live = self.peak_reserved = self.allocs = self.frees = self.refused = 0
        self.blocks: dict[int, Life] = {}
        self.calls: dict[int, Life] = {}
        self.pages = [b"" for _ in self.pool.pages]
        self.counted = [(0, 0) for _ in self.pool.pages]

    def timeline(self) -> Timeline:
        moments: list[Moment] = []
        failed = None
        times = self.trace.times or range(0, len(self.trace.events) * MICROSECOND, MICROSECOND)
        for index, (event, time) in enumerate(zip(self.trace.events, times, strict=True)):
            try:
                moment = self._step(event, time)
            except OutOfMemoryError as error:
                self.refused += 1
                failed = f"event {index}: {error}"
                break
            if moment is not None:
                moments.append(moment)
        return Timeline(
            trace=self.trace,
            moments=tuple(moments),
            blocks=self.blocks,
            calls=self.calls,
            statistics=self._statistics(),
            pages=tuple(self._backed()),
            end=(times[-1] if times else 0) + MICROSECOND,
            failed=failed,
        )

    def _step(self, event: Alloc | Free | CallBegin | CallEnd, time: int) -> Moment | None:
        match event:
            case CallBegin(call=call):
                self.calls[call] = Life(number=call, begin=time)
                return None
            case CallEnd(call=call):
                self.calls[call].end = time
                return None
            case Alloc(block=block, nbytes=nbytes, call=call):
                address = self.pool.alloc(nbytes, escapes=block in self.trace.escape)
                self.blocks[block] = Life(number=block, begin=time, address=address, nbytes=nbytes, call=call)
                self.live += nbytes
                self.allocs += 1
            case Free(block=block):
                self.blocks[block].end = time
                self.pool.free(self.blocks[block].address)
                self.live -= self.blocks[block].nbytes
                self.frees += 1
        reserved = self.pool.reserved
        self.peak_reserved = max(self.peak_reserved, reserved)
        return Moment(
            time=time,
            block=block,
            allocates=isinstance(event, Alloc),
            live=self.live,
            used=self.pool.used,
            reserved=reserved,
            runs=tuple(self._changed()),
        )

    def _changed(self) -> Iterator[PageRun]:
        """Which pages are backed or given back since it was last asked; what is given back comes first."""
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

    def _statistics(self) -> Statistics:
        pages = self.pool.pages
        return Statistics(
            live=self.live,
            allocs=self.allocs,
            frees=self.frees,
            used=self.pool.used,
            peak_used=self.pool.peak_used,
            reserved=self.pool.reserved,
            peak_reserved=self.peak_reserved,
            commits=sum(p.commits for p in pages),
            committed=sum(p.committed for p in pages),
            decommits=sum(p.decommits for p in pages),
            decommitted=sum(p.decommitted for p in pages),
            threads=1,
            refused=self.refused,
        )
