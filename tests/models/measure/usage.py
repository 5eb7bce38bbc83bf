"""What one call takes from the machine's allocator: how many storages, and how many bytes at a time.

Two peaks are told apart, because outputs are no planner's choice: each must be a storage of its own that
outlives the call, whoever planned the rest.

`planned`: the most bytes held at one moment by storages that were taken during the call and given back
before it returned.  `total`: the same with the outputs, which are the storages taken during the call and
still held when it has returned.  Storages of an earlier call count in neither: the machine keeps its last
result until the next call ends.  Bytes are those asked for, rounded up to 64, since no allocator hands out
less; this is also how floors are counted.  The machine's own table of symbolic sizes, which it takes at the
entry of every function, is counted apart (`table`): no planner places it.  Peaks of several devices are
added up, since memory of one is of no use to another.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import tvm_ffi

__all__ = ["Usage", "measured", "usage"]

_FREE, _STORAGE, _TABLE = 0, 1, 2
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One call.  Bytes, except `allocations` (how many storages were taken) and `outputs` (how many of them
    outlive the call).  `by_device`: the peaks of which `total` is the sum.
    """

    allocations: int
    outputs: int
    planned: int
    total: int
    table: int
    by_device: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Event:
    kind: int
    block: int
    device: int
    nbytes: int

    @property
    def change(self) -> int:
        """By how many bytes this moves what is held."""
        rounded = -(-self.nbytes // _ALIGNMENT) * _ALIGNMENT
        return -rounded if self.kind == _FREE else rounded


def measured(call: Callable[[], Any]) -> tuple[Any, Usage]:
    """What `call` returns, and what it took; it must run on a machine opened with the counting allocator
    (`load`).
    """
    events = tvm_ffi.get_global_func("symalloc.measure.events")
    events()  # what happened before is forgotten
    result = call()
    return result, usage(events())


def usage(numbers: Iterable[int]) -> Usage:
    """The figures of a list of events, four numbers each: kind, block, device, bytes."""
    events = list(_events(numbers))
    taken = {e.block for e in events if e.kind == _STORAGE}
    freed = {e.block for e in events if e.kind == _FREE}
    by_device = _peaks(events, taken)
    return Usage(
        allocations=len(taken),
        outputs=len(taken - freed),
        planned=sum(_peaks(events, taken & freed).values()),
        total=sum(by_device.values()),
        table=sum(e.nbytes for e in events if e.kind == _TABLE),
        by_device=by_device,
    )


def _events(numbers: Iterable[int]) -> Iterator[_Event]:
    flat = iter(numbers)
    for kind, block, device, nbytes in zip(flat, flat, flat, flat, strict=True):
        yield _Event(kind, block, device, nbytes)


def _peaks(events: Sequence[_Event], blocks: Container[int]) -> dict[int, int]:
    counted = [e for e in events if e.block in blocks]
    devices = {e.device for e in counted}
    return {d: max(accumulate(e.change for e in counted if e.device == d)) for d in devices}
