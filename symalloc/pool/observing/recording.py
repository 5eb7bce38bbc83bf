"""Turning a recording of the native core into a trace."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import msgspec

from symalloc.pool.simulating.trace import Event, Trace

FIELDS = 6  # kind, block or call, bytes, call, nanoseconds, whether it escapes
_Row = tuple[int, ...]


def recorded_trace(events: bytes | int | str, *tags: bytes | int | str) -> Trace:
    """The trace of `events`, six int64 each, and of tags: block, tag, block, tag, …; the last tag counts."""
    numbers = array("q", bytes(events))  # type: ignore[arg-type]
    rows = list(zip(*(numbers[i::FIELDS] for i in range(FIELDS)), strict=True))
    pairs = zip(tags[::2], tags[1::2], strict=True)
    return Trace(
        name="recorded",
        events=msgspec.convert([row[: 4 if row[0] == 1 else 3] for row in rows], tuple[Event, ...]),
        escape=frozenset(_escaping(rows)),
        times=tuple(row[4] for row in rows),
        tags={int(block): str(tag) for block, tag in pairs},
    )


def _escaping(rows: Sequence[_Row]) -> Iterator[int]:
    """Blocks that were said to escape, and those that are live when the call ends that allocated them."""
    held: dict[int, set[int]] = {}  # by call
    of: dict[int, int] = {}
    for kind, number, _, call, _, escapes in rows:
        if kind == 1:
            of[number] = call
            held.setdefault(call, set()).add(number)
            if escapes:
                yield number
        elif kind == 0:
            held.get(of[number], set()).discard(number)
        elif kind == 3:
            yield from held.pop(number, ())
