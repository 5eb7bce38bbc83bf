"""The typed form of allocation traces, and reading and writing them.

A trace file is one JSON object `{"name", "meta", "events": [...]}` with the events
`[1, id, size, call]` (allocate `size` bytes), `[0, id, 0]` (free), `[2, call, 0]` and `[3, call, 0]` (a call
begins, ends); call 0 stands for no call.  Two fields may be left out: `"times": [ns, ...]`, one for each
event, ascending, and `"tags": {"name": [ids], ...}`, what blocks are for.  A file may be compressed by gzip.
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import msgspec

from symalloc.native.native_functions import pool_functions
from symalloc.pool.pool_errors import PoolUsageError

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
