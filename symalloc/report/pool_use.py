"""The use of a pool, and replayed traces, for a person and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from symalloc.arguments import require_choice, shown
from symalloc.errors import UsageError
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.native_pool import PoolStatistics
from symalloc.pool.replaying import PolicySummary, Replayed, total
from symalloc.pool.sessions import Holding
from symalloc.pool.statistics_scope import ScopeStatistics, StatisticsScope
from symalloc.report.document import Document, as_json
from symalloc.report.quantities import cut, human_bytes

NAME = 14  # columns


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
    yield _row("policy", "reserved", "ratio", "given back", "commits", "decommits", "seconds", "ops/s")
    for r in results:
        yield _row(
            r.policy,
            human_bytes(r.peak_reserved),
            f"{r.ratio:.3f}",
            human_bytes(r.bytes_given_back) if r.commits else "-",
            str(r.commits) if r.commits else "-",
            str(r.decommits) if r.commits else "-",
            f"{r.seconds:.3f}",
            str(r.operations_per_second),
        )
        if r.out_of_memory is not None:
            yield f"    out of memory at {r.out_of_memory}"


def _summary(totals: Sequence[PolicySummary], count: int) -> Iterator[str]:
    yield f"peak reserved / peak live over {count} traces"
    yield _row("policy", "mean", "worst")
    for t in totals:
        yield _row(t.policy, f"{t.mean:.3f}", f"{t.worst:.3f}")
    yield "mean: geometric; reserved: bytes of backed pages; seconds: of the policy, driven from Python"


def _row(name: str, *cells: str) -> str:
    return f"  {name:<{NAME}}" + "".join(f"{cell:>12}" for cell in cells)


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
        lines += ["", f"{'held by':<{WIDTH}}{'bytes':>12}{'blocks':>10}"]
        lines += _first([(h.tag, f"{human_bytes(h.nbytes):>12}{h.blocks:>10}") for h in use.held])
    if scope is not None:
        live, used, reserved = map(human_bytes, (scope.peak_live, scope.peak_used, scope.peak_reserved))
        lines += ["", f"counted: at most {live} live, {used} used, {reserved} reserved"]
        lines.append(f"{'tag':<{WIDTH}}{'allocs':>10}{'bytes':>12}{'frees':>10}{'peak':>12}{'left':>12}")
        counts = [
            f"{count.allocs:>10}{human_bytes(count.allocated):>12}{count.frees:>10}"
            f"{human_bytes(count.peak):>12}{human_bytes(count.left):>12}"
            for count in scope.tags.values()
        ]
        lines += _first(list(zip(scope.tags, counts, strict=True)))
    return "".join(f"{line}\n" for line in lines)


def _first(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the rows of the first tags, and how many more there are."""
    for tag, cells in rows[:SHOWN]:
        yield f"{cut(tag.replace(chr(10), ' ') or NAMELESS, WIDTH - 1):<{WIDTH}}{cells}"
    if len(rows) > SHOWN:
        yield f"… {len(rows) - SHOWN} more"
