"""Allocation traces: their typed form, reading and writing them, recordings, and replays.

A trace file is one JSON object `{"name", "meta", "events": [...]}` with the events
`[1, id, size, call]` (allocate `size` bytes), `[0, id, 0]` (free), `[2, call, 0]` and `[3, call, 0]` (a call
begins, ends); call 0 stands for no call.  Two fields may be left out: `"times": [ns, ...]`, one for each
event, ascending, and `"tags": {"name": [ids], ...}`, what blocks are for.  A file may be compressed by gzip.
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Self

import msgspec

from symalloc.native.native_functions import pool_functions
from symalloc.pool.native_pool import BlockHandle, NativePool, PoolStatistics
from symalloc.pool.pool_errors import OutOfMemoryError, PoolUsageError
from symalloc.pool.pool_options import MOST, PoolOptions, round_up

if TYPE_CHECKING:
    from symalloc.native.native_functions import PoolObject


INT64_MAX = 2**63 - 1
GZIP = b"\x1f\x8b"
KINDS = "[1, id, size, call] allocates, [0, id, 0] frees, [2, call, 0] and [3, call, 0] begin and end a call"


# traces have millions of events: these are made faster than dataclasses, and the collector passes them over
class _Event(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """An event, written as a list of its kind and its fields."""


class Alloc(_Event, frozen=True, kw_only=True, tag=1):
    """Block `block` of `nbytes` bytes is allocated in call `call` (0: in none)."""

    block: int
    nbytes: Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
    call: int = 0


class Free(_Event, frozen=True, kw_only=True, tag=0):
    """Block `block` is freed."""

    block: int
    zero: int = 0


class CallBegin(_Event, frozen=True, kw_only=True, tag=2):
    """Call `call` begins."""

    call: int
    zero: int = 0


class CallEnd(_Event, frozen=True, kw_only=True, tag=3):
    """Call `call` ends."""

    call: int
    zero: int = 0


Event = Alloc | Free | CallBegin | CallEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The allocations and frees of a program, in order.

    `times` are nanoseconds, one for each event, or there are none; `tags` says what blocks are for.

    Invariant: every block is allocated once, freed at most once and after that; every call begins once and
    ends at most once and after that; sizes are in [0, 2^63); times ascend.
    """

    name: str
    events: tuple[Event, ...]
    meta: dict[str, object] = field(default_factory=dict)
    times: tuple[int, ...] = ()
    tags: dict[int, str] = field(default_factory=dict)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """A trace file as it is written."""

    events: tuple[Event, ...]
    name: str = ""
    meta: dict[str, object] = {}
    escape: list[int] = []  # of earlier recordings; the events tell it
    times: list[int] = []
    tags: dict[str, list[int]] = {}


def read_trace(path: Path) -> Trace:
    """The trace in the file at `path`; raises PoolUsageError where it cannot be read or makes no sense."""
    written = _decoded(_contents(path), path)
    _check_pairs(written.events, path)
    return Trace(
        name=written.name or path.stem,
        events=written.events,
        meta=written.meta,
        times=_checked_times(written, path),
        tags={block: tag for tag, blocks in written.tags.items() for block in blocks},
    )


def holds_trace(path: Path) -> bool:
    """Return whether the file at `path` is JSON with events, as traces are; False where it cannot be read."""
    try:
        found = msgspec.json.decode(_contents(path), type=dict[str, msgspec.Raw])
    except (PoolUsageError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return "events" in found


def trace_as_json(trace: Trace) -> bytes:
    """The contents of a file that `read_trace` reads back as `trace`."""
    document: dict[str, object] = {
        "name": trace.name,
        "meta": trace.meta,
        "events": trace.events,
    }
    if trace.times:
        document["times"] = trace.times
    if trace.tags:
        tags: dict[str, list[int]] = {}
        for block, tag in trace.tags.items():
            tags.setdefault(tag, []).append(block)
        document["tags"] = tags
    return msgspec.json.encode(document)


def _contents(path: Path) -> bytes:
    try:
        text = path.read_bytes()
        return gzip.decompress(text) if text.startswith(GZIP) else text
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise PoolUsageError(f"{path} is compressed by gzip, but damaged or cut off") from None
    except OSError as error:
        raise PoolUsageError(f"cannot read {path}: {error.strerror}") from None


def _decoded(text: bytes, path: Path) -> _File:
    if not text.strip():
        raise PoolUsageError(f"{path} is no trace: it is empty")
    try:
        return msgspec.json.decode(text, type=_File)
    except msgspec.ValidationError as error:
        raise PoolUsageError(f"{path} is no trace: {error}; {KINDS}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PoolUsageError(f"{path} is not JSON, or cut off: {error}") from None
    except RecursionError:
        raise PoolUsageError(f"{path} is no trace: nested too deeply") from None


def _checked_times(written: _File, path: Path) -> tuple[int, ...]:
    times = written.times
    if times and len(times) != len(written.events):
        raise PoolUsageError(f"{path}: there are {len(written.events)} events, but {len(times)} times")
    for index, (before, after) in enumerate(pairwise(times)):
        if after < before:
            raise PoolUsageError(f"{path}: times[{index + 1}], {after}, is before times[{index}], {before}")
    return tuple(times)


_WORDS = {"block": ("allocated", "freed"), "call": ("begun", "ended")}


def _check_pairs(events: Iterable[Event], path: Path) -> None:
    """Raise PoolUsageError where a block or a call begins twice, or ends when it is not there."""
    live: dict[tuple[str, int], bool] = {}  # False once it has ended
    for index, event in enumerate(events):
        what = ("block", event.block) if isinstance(event, Alloc | Free) else ("call", event.call)
        begins, before = isinstance(event, Alloc | CallBegin), live.get(what)
        if before is (None if begins else True):
            live[what] = begins
            continue
        (kind, number), (begun, ended) = what, _WORDS[what[0]]
        how = "a second time" if before is not None else f"but was never {begun}"
        row = msgspec.to_builtins(event)
        done = begun if begins else ended
        raise PoolUsageError(f"{path}: event {index} {row}: {kind} {number} is {done} {how}")


# -- recordings: the last events of a pool, as a trace -----------------------------------------------------


FIELDS = 5  # kind, block or call, bytes, call, nanoseconds
MOST_EVENTS = 2**22  # that are kept where nobody says how many: 40 bytes each
ALL_EVENTS = 2**40
_Row = tuple[int, ...]


class Recording:
    """The events of a pool since the recording began, which `InstrumentedPool.record` makes.

    At the end of a `with`, or by `stop`, it stops.  A pool has one recording at a time.
    """

    __slots__ = ("_final", "_pool")

    def __init__(self, pool: PoolObject, most: int) -> None:
        self._pool = pool
        self._final: Trace | None = None
        pool_functions.record(pool, most)

    @property
    def trace(self) -> Trace:
        """The last events: up to now, or to the end of the recording."""
        return self._final or recorded_trace(*pool_functions.recorded(self._pool))

    @property
    def dropped(self) -> int:
        """The events since the beginning that `trace` lacks."""
        dropped = self.trace.meta.get("dropped", 0)
        return dropped if isinstance(dropped, int) else 0

    def stop(self) -> Trace:
        """Stop recording; return the trace."""
        if self._final is None:
            pool_functions.record(self._pool, 0)
            self._final = self.trace
        return self._final

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop recording."""
        self.stop()


def recorded_trace(events: bytes | int | str, dropped: bytes | int | str, *tags: bytes | int | str) -> Trace:
    """The trace of `events`, five int64 each, and of tags: block, tag, block, tag, …; the last tag counts.

    `dropped` is the number of events before them.  Frees of blocks that were allocated there, and ends of
    calls that began there, are left out and counted, too: `meta["dropped"]`, where there are any.
    """
    numbers = array("q", bytes(events))  # type: ignore[arg-type]
    rows: list[_Row] = list(zip(*(numbers[i::FIELDS] for i in range(FIELDS)), strict=True))
    kept = list(_begun(rows)) if dropped else rows
    blocks = {row[1] for row in kept if row[0] == 1} if dropped else None
    lost = int(dropped) + len(rows) - len(kept)
    pairs = zip(map(int, tags[::2]), map(str, tags[1::2]), strict=True)
    return Trace(
        name="recorded",
        meta={"dropped": lost} if lost else {},
        events=msgspec.convert([row[: 4 if row[0] == 1 else 3] for row in kept], tuple[Event, ...]),
        times=tuple(row[4] for row in kept),
        tags={block: tag for block, tag in pairs if blocks is None or block in blocks},
    )


def _begun(rows: Sequence[_Row]) -> Iterator[_Row]:
    """The events of blocks that are allocated among them, and of calls that begin among them."""
    blocks, calls = set[int](), set[int]()
    for row in rows:
        kind, number, nbytes, call, *rest = row
        if kind == 1:
            blocks.add(number)
            yield row if call in calls else (kind, number, nbytes, 0, *rest)
        elif kind == 2:
            calls.add(number)
            yield row
        elif number in (blocks if kind == 0 else calls):
            yield row


# -- traces replayed: peaks of reserved and live bytes, and the pool event by event ------------------------


class ExactSize:
    """Freed blocks serve requests of just their size in units of 4096 bytes (TVM's pooled allocator)."""

    def __init__(self) -> None:
        self.reserved = 0
        self._waiting = Counter[int]()

    def alloc(self, nbytes: int) -> int:
        """The bytes of the block that is given: one that waits, or a new one."""
        size = max(round_up(nbytes, 4096), 4096)
        if self._waiting[size]:
            self._waiting[size] -= 1
        else:
            self.reserved += size
        return size

    def free(self, size: int) -> None:
        """Keep the block for the next request of its size."""
        self._waiting[size] += 1


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
                block = allocator.alloc(event.nbytes)
            except OutOfMemoryError as error:
                failed = f"event {index}: {str(error).splitlines()[0]}"
                break
            blocks[event.block] = (block, event.nbytes)
            live += event.nbytes
            peak_live = max(peak_live, live)
            peak_reserved = max(peak_reserved, allocator.reserved)
        elif isinstance(event, Free):
            block, nbytes = blocks.pop(event.block)
            allocator.free(block)
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
    mean, worst = round(prod(ratios) ** (1 / len(ratios)), 6), round(max(ratios), 6)
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
