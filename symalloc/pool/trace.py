"""The typed form of allocation traces, and reading and writing them.

A trace file is one JSON object `{"name", "meta", "escape": [ids], "events": [...]}` with the events
`[1, id, size, call]` (allocate `size` bytes), `[0, id, 0]` (free), `[2, call, 0]` and `[3, call, 0]` (a call
begins, ends).  `escape` names the blocks that outlive the call they were allocated in; call 0 stands for
no call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from symalloc.pool.errors import PoolUsageError

__all__ = ["Alloc", "CallBegin", "CallEnd", "Event", "Free", "Trace", "read_trace", "trace_as_json"]

INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Alloc:
    """Block `block` of `nbytes` bytes is allocated in call `call` (0: in none)."""

    block: int
    nbytes: int
    call: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Block `block` is freed."""

    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBegin:
    """Call `call` begins."""

    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """Call `call` ends."""

    call: int


Event = Alloc | Free | CallBegin | CallEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What a program allocated and freed, in order.

    Invariant: every block is allocated once, freed at most once and after that; sizes are in [0, 2^63).
    """

    name: str
    events: tuple[Event, ...]
    escape: frozenset[int] = frozenset()
    meta: dict[str, Any] = field(default_factory=dict)
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
    meta: dict[str, Any] = {}
    escape: list[int] = []


def read_trace(path: Path) -> Trace:
    """The trace in the file at `path`; raises PoolUsageError where it cannot be read or makes no sense."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise PoolUsageError(f"cannot read {path}: {error.strerror}") from None
    try:
        written = msgspec.json.decode(text, type=_File)
    except msgspec.ValidationError as error:
        raise PoolUsageError(f"{path} is no trace: {error}") from None
    except msgspec.DecodeError as error:
        raise PoolUsageError(f"{path} is not JSON, or cut off: {error}") from None
    except RecursionError:
        raise PoolUsageError(f"{path} is no trace: nested too deeply") from None
    return Trace(
        name=written.name or path.stem,
        events=_checked(written.events, path),
        escape=frozenset(written.escape),
        meta=written.meta,
    )


def trace_as_json(trace: Trace) -> bytes:
    """The contents of a file that `read_trace` reads back as `trace`."""
    return msgspec.json.encode(
        _File(
            name=trace.name,
            meta=trace.meta,
            escape=sorted(trace.escape),
            events=[_written(e) for e in trace.events],
        )
    )


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


def _checked(rows: Iterable[list[int]], path: Path) -> tuple[Event, ...]:
    events: list[Event] = []
    seen: set[int] = set()
    live: set[int] = set()
    for index, row in enumerate(rows):
        try:
            event = _event(row)
            _follow(event, seen, live)
        except ValueError as error:
            raise PoolUsageError(f"{path}: event {index} {row}: {error}") from None
        events.append(event)
    return tuple(events)


def _event(row: list[int]) -> Event:
    match row:
        case [1, block, nbytes, call] if 0 <= nbytes <= INT64_MAX:
            return Alloc(block=block, nbytes=nbytes, call=call)
        case [1, block, nbytes] if 0 <= nbytes <= INT64_MAX:
            return Alloc(block=block, nbytes=nbytes)
        case [1, _, nbytes, *_] if not 0 <= nbytes <= INT64_MAX:
            raise ValueError(f"the size {nbytes} is not in [0, 2^63)")
        case [0, block] | [0, block, _]:
            return Free(block=block)
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


def _follow(event: Event, seen: set[int], live: set[int]) -> None:
    if isinstance(event, Alloc):
        if event.block in seen:
            raise ValueError(f"block {event.block} is allocated a second time")
        seen.add(event.block)
        live.add(event.block)
    elif isinstance(event, Free):
        if event.block not in seen:
            raise ValueError(f"block {event.block} is freed but was never allocated")
        if event.block not in live:
            raise ValueError(f"block {event.block} is freed a second time")
        live.remove(event.block)
