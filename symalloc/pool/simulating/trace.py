"""The typed form of allocation traces, and reading and writing them.

A trace file is one JSON object `{"name", "meta", "escape": [ids], "events": [...]}` with the events
`[1, id, size, call]` (allocate `size` bytes), `[0, id, 0]` (free), `[2, call, 0]` and `[3, call, 0]` (a call
begins, ends).  `escape` names the blocks that outlive the call they were allocated in; call 0 stands for
no call.  Two fields may be left out: `"times": [ns, ...]`, one for each event, ascending, and
`"tags": {"name": [ids], ...}`, what blocks are for.  A file may be compressed by gzip.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec

from symalloc.pool.core.pool_errors import PoolUsageError

INT64_MAX = 2**63 - 1
GZIP = b"\x1f\x8b"


# traces have millions of events: these are made faster than dataclasses, and the collector passes them over
class Alloc(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Block `block` of `nbytes` bytes is allocated in call `call` (0: in none)."""

    block: int
    nbytes: int
    call: int = 0


class Free(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Block `block` is freed."""

    block: int


class CallBegin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Call `call` begins."""

    call: int


class CallEnd(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Call `call` ends."""

    call: int


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
    escape: frozenset[int] = frozenset()
    meta: dict[str, object] = field(default_factory=dict)
    times: tuple[int, ...] = ()
    tags: dict[int, str] = field(default_factory=dict)

    @property
    def peak_live(self) -> int:
        """The largest sum of bytes live at one moment."""
        sizes: dict[int, int] = {}
        live = peak = 0
        for event in self.events:
            if isinstance(event, Alloc):
                sizes[event.block] = event.nbytes
                live += event.nbytes
                peak = max(peak, live)
            elif isinstance(event, Free):
                live -= sizes.pop(event.block)
        return peak


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """A trace file as it is written."""

    events: list[list[int]]
    name: str = ""
    meta: dict[str, object] = {}
    escape: list[int] = []
    times: list[int] = []
    tags: dict[str, list[int]] = {}


def read_trace(path: Path) -> Trace:
    """The trace in the file at `path`; raises PoolUsageError where it cannot be read or makes no sense."""
    written = _decoded(_contents(path), path)
    return Trace(
        name=written.name or path.stem,
        events=_checked(written.events, path),
        escape=frozenset(written.escape),
        meta=written.meta,
        times=_checked_times(written, path),
        tags={block: tag for tag, blocks in written.tags.items() for block in blocks},
    )


def trace_as_json(trace: Trace) -> bytes:
    """The contents of a file that `read_trace` reads back as `trace`."""
    document: dict[str, object] = {
        "name": trace.name,
        "meta": trace.meta,
        "escape": sorted(trace.escape),
        "events": [_written(e) for e in trace.events],
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
        raise PoolUsageError(f"{path} is no trace: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PoolUsageError(f"{path} is not JSON, or cut off: {error}") from None
    except RecursionError:
        raise PoolUsageError(f"{path} is no trace: nested too deeply") from None


def _written(event: Event) -> list[int]:
    match event:
        case Alloc():
            return [1, event.block, event.nbytes, event.call]
        case Free():
            return [0, event.block, 0]
        case CallBegin():
            return [2, event.call, 0]
        case CallEnd():
            return [3, event.call, 0]


def _checked_times(written: _File, path: Path) -> tuple[int, ...]:
    times = written.times
    if times and len(times) != len(written.events):
        raise PoolUsageError(f"{path}: there are {len(written.events)} events, but {len(times)} times")
    for index, (before, after) in enumerate(pairwise(times)):
        if after < before:
            raise PoolUsageError(f"{path}: times[{index + 1}], {after}, is before times[{index}], {before}")
    return tuple(times)


def _checked(rows: Iterable[list[int]], path: Path) -> tuple[Event, ...]:
    events: list[Event] = []
    blocks, calls = _Pairing("block", "allocated", "freed"), _Pairing("call", "begun", "ended")
    for index, row in enumerate(rows):
        try:
            event = _event(row)
            if isinstance(event, Alloc | Free):
                blocks.follow(event.block, isinstance(event, Alloc))
            else:
                calls.follow(event.call, isinstance(event, CallBegin))
        except ValueError as error:
            raise PoolUsageError(f"{path}: event {index} {_short(row)}: {error}") from None
        events.append(event)
    return tuple(events)


def _event(row: list[int]) -> Event:
    match row:
        case [1, block, nbytes, call] if 0 <= nbytes <= INT64_MAX:
            return Alloc(block=block, nbytes=nbytes, call=call)
        case [0, block] | [0, block, _]:
            return Free(block=block)
        case [1, block, nbytes] if 0 <= nbytes <= INT64_MAX:
            return Alloc(block=block, nbytes=nbytes)
        case [1, _, nbytes, *_] if not 0 <= nbytes <= INT64_MAX:
            raise ValueError(f"the size {nbytes} is not in [0, 2^63)")
        case [2, call] | [2, call, _]:
            return CallBegin(call=call)
        case [3, call] | [3, call, _]:
            return CallEnd(call=call)
        case [0 | 1 | 2 | 3, *_]:
            raise ValueError(
                "wrong number of fields; expected [1, id, size, call], [0, id, 0], [2|3, call, 0]"
            )
        case [kind, *_]:
            raise ValueError(f"unknown kind {kind}; 1 allocates, 0 frees, 2 and 3 begin and end a call")
        case _:
            raise ValueError("empty")


class _Pairing:
    """Check that things of one kind begin once, and end at most once and after that."""

    __slots__ = ("_begins", "_ends", "_kind", "_live", "_seen")

    def __init__(self, kind: str, begins: str, ends: str) -> None:
        self._kind, self._begins, self._ends = kind, begins, ends
        self._seen: set[int] = set()
        self._live: set[int] = set()

    def follow(self, number: int, begins: bool) -> None:
        """One of them begins or ends; raises ValueError where it cannot."""
        if begins:
            if number in self._seen:
                raise ValueError(f"{self._kind} {number} is {self._begins} a second time")
            self._seen.add(number)
            self._live.add(number)
            return
        if number not in self._live:
            how = "a second time" if number in self._seen else f"but was never {self._begins}"
            raise ValueError(f"{self._kind} {number} is {self._ends} {how}")
        self._live.remove(number)


def _short(row: Sequence[int]) -> str:
    """`row` as it is written, cut where it is long."""
    text = str(list(row[:5]))
    return text if len(row) <= 5 else f"{text[:-1]}, ...]"
