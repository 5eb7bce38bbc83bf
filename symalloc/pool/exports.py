"""The formats that a replayed trace can be exported to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from types import UnionType
from typing import NamedTuple

import msgspec

from symalloc.arguments import shown
from symalloc.pool.native_pool import PoolStatistics
from symalloc.pool.pool_errors import PoolUsageError
from symalloc.pool.replaying import MICROSECOND, Lifespan, PoolTimeline

COUNTERS, CALLS, BLOCKS = 1, 2, 3  # process ids of perfetto's

_Record = dict[str, object]


def perfetto_json(timeline: PoolTimeline) -> bytes:
    """The contents of a JSON file in the Trace Event Format (Google, 2016), which Perfetto and chrome://tracing
    open; times are microseconds, sizes bytes.

    Counters show bytes over time; every block is a slice from its allocation to its free.  Slices of one
    thread must nest, so that blocks are laid on as many threads ("lanes") as there are live at most.
    """
    trace = timeline.trace
    blocks, calls = _ordered(timeline.blocks), _ordered(timeline.calls)
    records = [
        *_process(COUNTERS, f"{trace.name}: memory"),
        *(_process(CALLS, f"{trace.name}: calls") if calls else ()),
        *_process(BLOCKS, f"{trace.name}: blocks"),
        *_counters(timeline),
        *_slices(timeline, CALLS, calls, {c.number: f"call {c.number}" for c in calls}),
        *_slices(timeline, BLOCKS, blocks, {b.number: timeline.name(b.number) for b in blocks}),
    ]
    return msgspec.json.encode(
        {
            "traceEvents": records,
            "displayTimeUnit": "ns",
            "otherData": {"trace": trace.name, "failed": timeline.failed or ""},
        }
    )


def _ordered(lives: dict[int, Lifespan]) -> list[Lifespan]:
    return sorted(lives.values(), key=lambda life: life.begin)


def _process(number: int, name: str) -> Iterator[_Record]:
    yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}


def _counters(timeline: PoolTimeline) -> Iterator[_Record]:
    for moment in timeline.moments:
        yield {
            "ph": "C",
            "name": "bytes",
            "pid": COUNTERS,
            "ts": moment.time / MICROSECOND,
            "args": {"live": moment.live, "reserved": moment.reserved},
        }


def _slices(
    timeline: PoolTimeline, process: int, lives: Iterable[Lifespan], names: dict[int, str]
) -> Iterator[_Record]:
    for lane, life in _on_lanes(lives, timeline.end):
        end = timeline.end if life.end is None else life.end
        arguments: _Record = {"number": life.number, "freed": life.end is not None}
        if process == BLOCKS:
            arguments |= {"bytes": life.nbytes, "address": life.address, "call": life.call}
        yield {
            "ph": "X",
            "name": names[life.number],
            "cat": "call" if process == CALLS else "block",
            "pid": process,
            "tid": lane,
            "ts": life.begin / MICROSECOND,
            "dur": (end - life.begin) / MICROSECOND,
            "args": arguments,
        }


def _on_lanes(lives: Iterable[Lifespan], last: int) -> Iterator[tuple[int, Lifespan]]:
    """Each of `lives`, in the order of their begin, on the lowest lane (from 1) that is free then."""
    busy: list[tuple[int, int]] = []  # end, lane
    free: list[int] = []
    lanes = 0
    for life in lives:
        while busy and busy[0][0] <= life.begin:
            heappush(free, heappop(busy)[1])
        if free:
            lane = heappop(free)
        else:
            lanes += 1
            lane = lanes
        heappush(busy, (last if life.end is None else life.end, lane))
        yield lane, life


# -- prometheus ----------------------------------------------------------------------------------------------

PREFIX = "symalloc_pool_"


class _Metric(NamedTuple):
    """One metric and the field of the statistics that it shows; `_total` ends the name of a counter."""

    name: str
    field: str
    help: str

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


METRICS = (
    _Metric("live_bytes", "live", "Bytes asked for and not freed."),
    _Metric("used_bytes", "used", "Bytes handed out to callers and to the caches of threads, rounded up."),
    _Metric("peak_used_bytes", "peak_used", "The most bytes in use at a time, since the last reset."),
    _Metric("reserved_bytes", "reserved", "Bytes of pages that are backed."),
    _Metric("peak_reserved_bytes", "peak_reserved", "The most bytes backed at a time, since the last reset."),
    _Metric("threads", "threads", "Threads that have a cache in the pool."),
    _Metric("allocations_total", "allocs", "Allocations."),
    _Metric("frees_total", "frees", "Frees."),
    _Metric("refused_allocations_total", "refused", "Allocations that did not fit."),
    _Metric("commits_total", "commits", "Operations that backed pages."),
    _Metric("committed_bytes_total", "committed", "Bytes of pages that were backed."),
    _Metric("decommits_total", "decommits", "Operations that gave pages back."),
    _Metric("decommitted_bytes_total", "decommitted", "Bytes of pages that were given back."),
)


def prometheus_text(
    pools: Mapping[str, PoolStatistics], limits: Mapping[str, int | None] | None = None
) -> str:
    """The metrics of several pools in the text format 0.0.4 that Prometheus scrapes, by the value of their
    label `pool`; `limits` are bytes, None: none.

    Raises PoolUsageError for anything else.
    """
    _require(pools, "pools", PoolStatistics, "the statistics of a pool")
    _require({} if limits is None else limits, "limits", int | None, "bytes or None")
    lines: list[str] = []
    for metric in METRICS:
        values = {name: int(getattr(pool, metric.field)) for name, pool in pools.items()}
        lines += _lines(metric, values)
    bounds = {name: limit for name, limit in (limits or {}).items() if limit is not None}
    if bounds:
        lines += _lines(_Metric("limit_bytes", "", "Bytes that may be backed at most."), bounds)
    return "".join(f"{line}\n" for line in lines)


def _require(given: object, name: str, kind: type | UnionType, what: str) -> None:
    """Raise PoolUsageError where `given` does not map names to values of `kind`."""
    if not isinstance(given, Mapping):
        raise PoolUsageError(f"`{name}` maps the names of pools to {what}; it is {shown(given)}")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, kind) or isinstance(value, bool):
            raise PoolUsageError(
                f"`{name}` maps the names of pools to {what}, not {shown(key)} to {shown(value)}"
            )


def _lines(metric: _Metric, values: Mapping[str, int]) -> Iterator[str]:
    name = PREFIX + metric.name
    yield f"# HELP {name} {metric.help}"
    yield f"# TYPE {name} {metric.kind}"
    for pool, value in values.items():
        yield f'{name}{{pool="{_escaped(pool)}"}} {value}'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# -- by name ------------------------------------------------------------------------------------------------

Exporter = Callable[[PoolTimeline], bytes]
EXPORTS: Mapping[str, Exporter] = {
    "perfetto": perfetto_json,
    "prometheus": lambda timeline: prometheus_text({timeline.trace.name: timeline.statistics}).encode(),
}


def exporter(name: str) -> Exporter:
    """The function that makes the contents of such a file; raises PoolUsageError for an unknown format."""
    if name not in EXPORTS:
        raise PoolUsageError(f"there is no export `{name}`; there are {', '.join(EXPORTS)}")
    return EXPORTS[name]
