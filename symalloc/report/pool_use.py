"""The use of a pool, and replayed traces, for a person and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from symalloc.errors import UsageError, require_choice, shown
from symalloc.pool.instrumented_pool import Holding, InstrumentedPool
from symalloc.pool.native_pool import PoolStatistics
from symalloc.pool.statistics_scope import ScopeStatistics, StatisticsScope, TagCount
from symalloc.pool.trace import PolicySummary, Replayed, total
from symalloc.report.document import Document, as_json
from symalloc.report.quantities import capped, columns, cut, human_bytes

HEADS = ("  policy", "reserved", "ratio", "given back", "commits", "decommits", "seconds", "ops/s")


def replays_as_text(results: Sequence[Replayed]) -> str:
    """A table for each trace, and where there are several, one for all; results of a trace stand together."""
    lines: list[str] = []
    for trace, group in groupby(results, key=lambda r: r.trace):
        lines += [*_trace(trace, list(group)), ""]
    totals = _totals(results)
    if len(results) > len(totals):
        lines += _summary(totals, len(results) // len(totals))
    return "\n".join(lines).rstrip("\n") + "\n"


class ReplayDocument(Document, frozen=True, kw_only=True, tag_field="version", tag=1):
    """Traces replayed on policies."""

    results: tuple[Replayed, ...]
    totals: tuple[PolicySummary, ...]


def replays_as_json(results: Sequence[Replayed]) -> str:
    """Return the same as a `ReplayDocument`."""
    return as_json(ReplayDocument(results=tuple(results), totals=tuple(_totals(results))))


def _totals(results: Sequence[Replayed]) -> list[PolicySummary]:
    policies = dict.fromkeys(r.policy for r in results)
    return [total([r for r in results if r.policy == policy]) for policy in policies]


def _trace(name: str, results: Sequence[Replayed]) -> Iterator[str]:
    live = human_bytes(max(r.peak_live for r in results))
    yield f"{name}: {max(r.operations for r in results)} operations, at most {live} live"
    yield from columns([HEADS, *map(_row, results)])
    for r in (r for r in results if r.out_of_memory is not None):
        yield f"  {r.policy}: out of memory at {r.out_of_memory}"


def _row(r: Replayed) -> tuple[str, ...]:
    pages = (human_bytes(r.bytes_given_back), str(r.commits), str(r.decommits)) if r.commits else ("-",) * 3
    speed = (f"{r.seconds:.3f}", str(r.operations_per_second))
    return f"  {r.policy}", human_bytes(r.peak_reserved), f"{r.ratio:.3f}", *pages, *speed


def _summary(totals: Sequence[PolicySummary], count: int) -> Iterator[str]:
    yield f"peak reserved / peak live over {count} traces"
    rows = [(f"  {t.policy}", f"{t.mean:.3f}", f"{t.worst:.3f}") for t in totals]
    yield from columns([("  policy", "mean", "worst"), *rows])
    yield "mean: geometric; reserved: bytes of backed pages; seconds: of the policy, driven from Python"


SHOWN = 20  # tags
WIDTH = 44  # columns for a tag
NAMELESS = "(no tag)"


def pool_report(
    pool: InstrumentedPool, scope: ScopeStatistics | StatisticsScope | None = None, *, form: str = "text"
) -> str:
    """Report on the use of `pool` as `text` or `json`; `scope` adds its counts of a part of the program.

    Of a scope that counts several pools it takes those of `pool`.  Raises UsageError for another form,
    and for what is no pool or scope.
    """
    require_choice("form", form, ("text", "json"))
    if not isinstance(pool, InstrumentedPool):
        raise UsageError(f"pool is {shown(pool)}; it must be a symalloc.Pool")
    if not isinstance(scope, ScopeStatistics | StatisticsScope | None):
        raise UsageError(f"scope is {shown(scope)}; it must be what symalloc.pool.statistics() gives")
    counted = scope.figures_of(pool) if isinstance(scope, StatisticsScope) else scope
    use = PoolDocument(limit=pool.limit, statistics=pool.statistics(), held=pool.leaks(), counted=counted)
    return as_json(use) if form == "json" else use_as_text(use)


class PoolDocument(Document, frozen=True, kw_only=True, tag_field="version", tag=1):
    """The use of a pool, in bytes; `held` are the live blocks by tag, `counted` is null without a scope."""

    limit: int | None
    statistics: PoolStatistics
    held: tuple[Holding, ...]
    counted: ScopeStatistics | None


def use_as_text(use: PoolDocument) -> str:
    """A table: amounts, then who holds memory, then what was counted."""
    now, scope = use.statistics, use.counted
    bound = "no limit" if use.limit is None else f"limit {human_bytes(use.limit)}"
    lines = [
        f"live      {human_bytes(now.live):>12}   {now.allocs} allocations, {now.frees} frees",
        f"used      {human_bytes(now.used):>12}   at most {human_bytes(now.peak_used)}",
        f"reserved  {human_bytes(now.reserved):>12}   at most {human_bytes(now.peak_reserved)}, {bound}",
        f"committed {human_bytes(now.committed):>12}   in {now.commits} operations",
        f"returned  {human_bytes(now.decommitted):>12}   in {now.decommits} operations",
    ]
    if now.refused:
        lines.append(f"refused   {now.refused:>12}   allocations that did not fit")
    if use.held:
        held = [(_tag(h.tag), human_bytes(h.nbytes), str(h.blocks)) for h in use.held]
        lines += ["", *_table([("held by", "bytes", "blocks"), *held])]
    if scope is not None:
        live, used, reserved = map(human_bytes, (scope.peak_live, scope.peak_used, scope.peak_reserved))
        lines += ["", f"counted: at most {live} live, {used} used, {reserved} reserved"]
        heads = ("tag", "allocs", "bytes", "frees", "peak", "left")
        lines += _table([heads, *(_counted(tag, count) for tag, count in scope.tags.items())])
    return "".join(f"{line}\n" for line in lines)


def _counted(tag: str, count: TagCount) -> tuple[str, ...]:
    taken, peak, left = map(human_bytes, (count.allocated, count.peak, count.left))
    return _tag(tag), str(count.allocs), taken, str(count.frees), peak, left


def _tag(tag: str) -> str:
    return cut(tag.replace("\n", " ") or NAMELESS, WIDTH)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows of the first tags, and how many more there are."""
    return capped(columns(rows), "tags", SHOWN + 1)
