"""The metrics of pools, in the text format that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import NamedTuple

from symalloc.errors import shown
from symalloc.pool.native_pool import PoolStatistics
from symalloc.pool.pool_errors import PoolUsageError

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
