"""Counting what pools do within a part of a program, by tag, and the metrics of pools.

with symalloc.pool.statistics() as counted:
    step()
found = counted.figures()
print(found.peak_live, found.tags["main.a float32[n, 64] (matmul, model.py:14)"].peak)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import UnionType
from typing import NamedTuple
from weakref import ref

import msgspec

from symalloc.errors import shown
from symalloc.native.native_functions import pool_functions
from symalloc.pool.native_pool import NativePool, PoolStatistics, living_pools
from symalloc.pool.pool_errors import PoolUsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class TagCount:
    """Blocks and bytes under one tag; sizes are what was asked for.

    `allocated` and `freed` are bytes; `left` are those allocated within and not freed, `peak` the most of
    them at a time.  Frees of blocks from before count, under the tag that is known of them.
    """

    allocs: int = 0
    allocated: int = 0
    frees: int = 0
    freed: int = 0
    left: int = 0
    peak: int = 0


class ScopeStatistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of a scope at one moment; sizes in bytes.

    `live` is live at the end, from before too, and `peak_live` the most at a time; `peak_used` and
    `peak_reserved` are as in `PoolStatistics`.  Of several pools they are sums: an upper bound of the peaks.
    `tags` has "" for blocks without a tag, the highest peaks first.
    """

    live: int
    peak_live: int
    peak_used: int
    peak_reserved: int
    tags: Mapping[str, TagCount]

    @property
    def total(self) -> TagCount:
        """The sum over all tags; its `peak` is the sum of theirs, an upper bound."""
        return _sum(self.tags.values())


class StatisticsScope:
    """Running totals of some pools, which it keeps until close(); they are final from then on."""

    __slots__ = ("_final", "_open", "_pools")

    def __init__(self, pools: Iterable[NativePool]) -> None:
        counted = list(pools)
        self._pools = [ref(pool) for pool in counted]
        self._open = [(pool.object, pool_functions.open_scope(pool.object)) for pool in counted]
        self._final: list[ScopeStatistics] = []

    def figures(self) -> ScopeStatistics:
        """All figures at one moment: now, or the end."""
        return _added(self._each())

    def figures_of(self, pool: NativePool) -> ScopeStatistics:
        """The figures of `pool` alone; all 0 where this does not count it.  Raises PoolUsageError."""
        _require_pools([pool])
        return _added([one for known, one in zip(self._pools, self._each(), strict=True) if known() is pool])

    def _each(self) -> list[ScopeStatistics]:
        return self._final or [_read_scope(pool_functions.read_scope(*scope)) for scope in self._open]

    def close(self) -> None:
        """Stop counting."""
        self._final = self._each()
        for scope in self._open:
            pool_functions.close_scope(*scope)
        self._open = []


@contextmanager
def statistics(*pools: NativePool) -> Iterator[StatisticsScope]:
    """Count what `pools` do, by any thread, until the end of the block; without any, all pools there are.

    Blocks may nest and overlap.  Each allocation and free costs a lock meanwhile.  Raises PoolUsageError for
    what is no pool.
    """
    _require_pools(pools)
    scope = StatisticsScope(pools or living_pools())
    try:
        yield scope
    finally:
        scope.close()


def _require_pools(given: Iterable[object]) -> None:
    for one in given:
        if not isinstance(one, NativePool):
            raise PoolUsageError(f"statistics are those of pools, not of {shown(one)}")


def _read_scope(answer: Sequence[int | str]) -> ScopeStatistics:
    """From the native core's answer: four figures, then a tag and six figures for each tag."""
    live, peak_live, peak_used, peak_reserved, *rest = answer
    names = [f.name for f in fields(TagCount)]
    step = 1 + len(names)
    return ScopeStatistics(
        live=int(live),
        peak_live=int(peak_live),
        peak_used=int(peak_used),
        peak_reserved=int(peak_reserved),
        tags={
            str(rest[i]): TagCount(**dict(zip(names, map(int, rest[i + 1 : i + step]), strict=True)))
            for i in range(0, len(rest), step)
        },
    )


def _added(each: Sequence[ScopeStatistics]) -> ScopeStatistics:
    names = {tag for s in each for tag in s.tags}
    tags = {tag: _sum(s.tags[tag] for s in each if tag in s.tags) for tag in names}
    return ScopeStatistics(
        live=sum(s.live for s in each),
        peak_live=sum(s.peak_live for s in each),
        peak_used=sum(s.peak_used for s in each),
        peak_reserved=sum(s.peak_reserved for s in each),
        tags=dict(sorted(tags.items(), key=lambda item: (-item[1].peak, item[0]))),
    )


def _sum(each: Iterable[TagCount]) -> TagCount:
    counts = list(each)
    return TagCount(**{f.name: sum(getattr(c, f.name) for c in counts) for f in fields(TagCount)})


# -- metrics in the text format that Prometheus scrapes ----------------------------------------------------


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
        label = pool.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        yield f'{name}{{pool="{label}"}} {value}'
