"""Recording what a pool does: the last events, as a trace."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from symalloc.native.native_functions import pool_functions
from symalloc.pool.simulating.trace import Event, Trace

if TYPE_CHECKING:
    from symalloc.native.native_functions import PoolObject

FIELDS = 6  # kind, block or call, bytes, call, nanoseconds, whether it escapes
MOST_EVENTS = 2**22  # that are kept where nobody says how many: 48 bytes each
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
        return dropped_events(self.trace)

    def stop(self) -> Trace:
        """Stop recording; return the trace."""
        if self._final is None:
            pool_functions.record(self._pool, 0)
            self._final = self.trace
        return self._final

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop recording."""
        self.stop()


def dropped_events(trace: Trace) -> int:
    """The events that a recorded trace lacks."""
    dropped = trace.meta.get("dropped", 0)
    return dropped if isinstance(dropped, int) else 0


def recorded_trace(events: bytes | int | str, dropped: bytes | int | str, *tags: bytes | int | str) -> Trace:
    """The trace of `events`, six int64 each, and of tags: block, tag, block, tag, …; the last tag counts.

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
        escape=frozenset(_escaping(kept)),
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
