"""The statistics of pools in the text format that Prometheus scrapes.

Format: "Exposition formats", text format 0.0.4, Prometheus documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from symalloc.pool.core.pool_statistics import PoolStatistics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "symalloc_pool_"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metric:
    """One metric and the field of the statistics that it shows."""

    name: str
    kind: str
    help: str
    field: str


def _gauge(name: str, field: str, text: str) -> _Metric:
    return _Metric(name=name, kind="gauge", help=text, field=field)


def _counter(name: str, field: str, text: str) -> _Metric:
    return _Metric(name=name, kind="counter", help=text, field=field)


METRICS = (
    _gauge("live_bytes", "live", "Bytes asked for and not freed."),
    _gauge("used_bytes", "used", "Bytes handed out to callers and to the bins of threads, rounded up."),
    _gauge("peak_used_bytes", "peak_used", "The most bytes in use at a time, since the last reset."),
    _gauge("reserved_bytes", "reserved", "Bytes of pages that are backed."),
    _gauge("peak_reserved_bytes", "peak_reserved", "The most bytes backed at a time, since the last reset."),
    _gauge("threads", "threads", "Threads that have bins in the pool."),
    _counter("allocations_total", "allocs", "Allocations."),
    _counter("frees_total", "frees", "Frees."),
    _counter("refused_allocations_total", "refused", "Allocations that did not fit."),
    _counter("commits_total", "commits", "Operations that backed pages."),
    _counter("committed_bytes_total", "committed", "Bytes of pages that were backed."),
    _counter("decommits_total", "decommits", "Operations that gave pages back."),
    _counter("decommitted_bytes_total", "decommitted", "Bytes of pages that were given back."),
)


def prometheus_text(
    pools: Mapping[str, PoolStatistics], limits: Mapping[str, int | None] | None = None
) -> str:
    """The metrics of several pools, by the value of their label `pool`; `limits` are bytes, None: none."""
    lines: list[str] = []
    for metric in METRICS:
        values = {name: int(getattr(pool, metric.field)) for name, pool in pools.items()}
        lines += _lines(metric, values)
    bounds = {name: limit for name, limit in (limits or {}).items() if limit is not None}
    if bounds:
        lines += _lines(_gauge("limit_bytes", "", "Bytes that may be backed at most."), bounds)
    return "".join(f"{line}\n" for line in lines)


def _lines(metric: _Metric, values: Mapping[str, int]) -> Iterator[str]:
    name = PREFIX + metric.name
    yield f"# HELP {name} {metric.help}"
    yield f"# TYPE {name} {metric.kind}"
    for pool, value in values.items():
        yield f'{name}{{pool="{_escaped(pool)}"}} {value}'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
