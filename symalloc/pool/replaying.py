"""Traces replayed on policies: peaks of reserved and live bytes, and the pool event by event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from time import perf_counter

import msgspec

from symalloc.pool.native_pool import BlockHandle, NativePool, PoolStatistics
from symalloc.pool.pool_errors import OutOfMemoryError
from symalloc.pool.pool_options import MOST, PoolOptions, round_up
from symalloc.pool.trace import Alloc, Free, Trace


class ExactSize:
    """Freed blocks serve requests of just their size in units of 4096 bytes (TVM's pooled allocator)."""

    def __init__(self) -> None:
        self.reserved = 0
        self._waiting: defaultdict[int, list[int]] = defaultdict(list)
        self._sizes: dict[int, int] = {}

    def alloc(self, nbytes: int) -> int:
        """The address of a block."""
        size = max(round_up(nbytes, 4096), 4096)
        waiting = self._waiting[size]
        if waiting:
            return waiting.pop()
        address = self.reserved
        self._sizes[address] = size
        self.reserved += size
        return address

    def free(self, address: int) -> None:
        """Keep the block for the next request of its size."""
        self._waiting[self._sizes[address]].append(address)


def replay_pool(options: PoolOptions) -> NativePool:
    """Return the pool that a trace is replayed on: nobody writes to its memory, so that it may have more of
    it than the machine has.
    """
    limit = MOST if options.limit is None else options.limit
    return NativePool(replace(options, limit=limit), huge=False)


POLICIES: Mapping[str, Callable[[PoolOptions], NativePool | ExactSize]] = {
    "pool": replay_pool,
    "exact-size": lambda _: ExactSize(),
}


class Replayed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One trace on one policy; sizes in bytes.

    `operations` counts allocations and frees, `seconds` the time of all, called from Python.  `ratio` is peak
    reserved to peak live, 1 where nothing was allocated.
    `bytes_given_back` went to the operating system in `decommits` operations; `left_live` bytes stayed live.
    `out_of_memory` says which event ran out of memory, None: none did; figures go as far as that event.
    """

    trace: str
    policy: str
    operations: int
    peak_live: int
    peak_reserved: int
    seconds: float
    left_live: int = 0
    commits: int = 0
    decommits: int = 0
    bytes_given_back: int = 0
    out_of_memory: str | None = None
    ratio: float
    operations_per_second: int


class PolicySummary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One policy over several traces: the geometric mean and the worst of the ratios."""

    policy: str
    mean: float = msgspec.field(name="geometric_mean")
    worst: float


def replay(trace: Trace, policy: str, options: PoolOptions) -> Replayed:
    """`trace` on the policy of that name, one of `POLICIES`."""
    allocator = POLICIES[policy](options)
    live = peak_live = peak_reserved = operations = 0
    blocks: dict[int, tuple[int, int]] = {}
    failed: str | None = None
    begin = perf_counter()
    for index, event in enumerate(trace.events):
        if isinstance(event, Alloc):
            try:
                address = allocator.alloc(event.nbytes)
            except OutOfMemoryError as error:
                failed = f"event {index}: {str(error).splitlines()[0]}"
                break
            blocks[event.block] = (address, event.nbytes)
            live += event.nbytes
            peak_live = max(peak_live, live)
            peak_reserved = max(peak_reserved, allocator.reserved)
        elif isinstance(event, Free):
            address, nbytes = blocks.pop(event.block)
            allocator.free(address)
            live -= nbytes
        else:
            continue
        operations += 1
    seconds = perf_counter() - begin
    pages = allocator.statistics() if isinstance(allocator, NativePool) else None
    return Replayed(
        trace=trace.name,
        policy=policy,
        operations=operations,
        peak_live=peak_live,
        peak_reserved=peak_reserved,
        seconds=round(seconds, 6),
        left_live=live,
        commits=pages.commits if pages else 0,
        decommits=pages.decommits if pages else 0,
        bytes_given_back=pages.decommitted if pages else 0,
        out_of_memory=failed,
        ratio=round(peak_reserved / peak_live, 6) if peak_live else 1.0,
        operations_per_second=round(operations / seconds) if seconds else 0,
    )


def total(results: Sequence[Replayed]) -> PolicySummary:
    """The summary of one policy's results, at least one."""
    ratios = [r.ratio for r in results]
    mean, worst = round(geometric_mean(ratios), 6), round(max(ratios), 6)
    return PolicySummary(policy=results[0].policy, mean=mean, worst=worst)


# -- the pool after each event -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePoint:
    """The pool after one event; sizes in bytes."""

    time: int  # nanoseconds, or the number of the event
    block: int
    allocates: bool
    live: int
    used: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBlock:
    """A block of a trace, its place in the pool, and the call that it is allocated in, 0 for none."""

    number: int
    address: int
    nbytes: int
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTimeline:
    """The events of a trace, in order; an allocation that does not fit ends it, and `failed` says how."""

    trace: Trace
    moments: tuple[TimelinePoint, ...]
    blocks: dict[int, PlacedBlock]
    statistics: PoolStatistics
    failed: str | None = None

    def name(self, block: int) -> str:
        """The name of a block: its tag, else its number."""
        return self.trace.tags.get(block) or f"block {block}"


def timeline_of(trace: Trace, options: PoolOptions | None = None) -> PoolTimeline:
    """`trace` on a pool with these options."""
    pool, handles = replay_pool(options or PoolOptions()), dict[int, BlockHandle]()
    blocks, moments, failed = dict[int, PlacedBlock](), list[TimelinePoint](), None
    times = trace.times or range(len(trace.events))
    for index, (event, time) in enumerate(zip(trace.events, times, strict=True)):
        if isinstance(event, Alloc):
            number, nbytes = event.block, event.nbytes
            try:
                handle = handles[number] = pool.alloc(nbytes)
            except OutOfMemoryError as error:
                failed = f"event {index}: {error}"
                break
            address = handle.address
            blocks[number] = PlacedBlock(number=number, address=address, nbytes=nbytes, call=event.call)
        elif isinstance(event, Free):
            handles.pop(event.block).free()
        else:
            continue
        now = pool.statistics()
        moments.append(
            TimelinePoint(
                time=time,
                block=event.block,
                allocates=isinstance(event, Alloc),
                live=now.live,
                used=now.used,
                reserved=now.reserved,
            )
        )
    return PoolTimeline(
        trace=trace, moments=tuple(moments), blocks=blocks, statistics=pool.statistics(), failed=failed
    )
