"""A report on the use of a pool, for a person and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeAlias

from symalloc.arguments import require_choice, shown
from symalloc.errors import UsageError
from symalloc.report.quantities import human_bytes

if TYPE_CHECKING:
    from symalloc.pool.instrumented_pool import Holding, InstrumentedPool
    from symalloc.pool.native_pool import PoolStatistics
    from symalloc.pool.statistics_scope import ScopeStatistics, StatisticsScope, TagCount

    Scope: TypeAlias = ScopeStatistics | StatisticsScope

SHOWN = 20  # tags
WIDTH = 44  # columns for a tag
NAMELESS = "(no tag)"


def pool_report(pool: InstrumentedPool, scope: Scope | None = None, *, form: str = "text") -> str:
    """Report on the use of `pool` as `text` or `json`; `scope` adds its counts of a part of the program.

    Of a scope that counts several pools it takes those of `pool`.  Raises UsageError for another form,
    and for what is no pool or scope.
    """
    require_choice("form", form, ("text", "json"))
    _require_kinds(pool, scope)
    render = use_as_json if form == "json" else use_as_text
    return render(pool.statistics(), pool.limit, pool.leaks(), _counted_of(pool, scope))


def _require_kinds(pool: object, scope: object) -> None:
    from symalloc.pool.instrumented_pool import InstrumentedPool
    from symalloc.pool.statistics_scope import ScopeStatistics, StatisticsScope

    if not isinstance(pool, InstrumentedPool):
        raise UsageError(f"pool is {shown(pool)}; it must be a symalloc.Pool")
    if not isinstance(scope, ScopeStatistics | StatisticsScope | None):
        raise UsageError(f"scope is {shown(scope)}; it must be what symalloc.pool.statistics() gives")


def _counted_of(pool: InstrumentedPool, scope: Scope | None) -> Scope | None:
    from symalloc.pool.statistics_scope import StatisticsScope

    return scope.figures_of(pool) if isinstance(scope, StatisticsScope) else scope


def use_as_text(
    now: PoolStatistics, limit: int | None, held: Sequence[Holding], scope: Scope | None = None
) -> str:
    """A table: amounts, then who holds memory, then what was counted."""
    lines = [*_amounts(now, limit), *_held(held)]
    if scope is not None:
        lines += ["", *_counted(scope)]
    return "".join(f"{line}\n" for line in lines)


def use_as_json(
    now: PoolStatistics, limit: int | None, held: Sequence[Holding], scope: Scope | None = None
) -> str:
    """`{"version": 1, "limit", "statistics": {...}, "held": [...], "counted": {...}|null}`; in bytes."""
    document = {
        "version": 1,
        "limit": limit,
        "statistics": asdict(now),
        "held": [asdict(holding) for holding in held],
        "counted": None if scope is None else _scope_json(scope),
    }
    return json.dumps(document, indent=2) + "\n"


def _amounts(now: PoolStatistics, limit: int | None) -> Iterator[str]:
    bound = "no limit" if limit is None else f"limit {human_bytes(limit)}"
    yield f"live      {human_bytes(now.live):>12}   {now.allocs} allocations, {now.frees} frees"
    yield f"used      {human_bytes(now.used):>12}   at most {human_bytes(now.peak_used)}"
    yield f"reserved  {human_bytes(now.reserved):>12}   at most {human_bytes(now.peak_reserved)}, {bound}"
    yield f"committed {human_bytes(now.committed):>12}   in {now.commits} operations"
    yield f"returned  {human_bytes(now.decommitted):>12}   in {now.decommits} operations"
    if now.refused:
        yield f"refused   {now.refused:>12}   allocations that did not fit"


def _held(held: Sequence[Holding]) -> Iterator[str]:
    if not held:
        return
    yield ""
    yield f"{'held by':<{WIDTH}}{'bytes':>12}{'blocks':>10}"
    for holding in held[:SHOWN]:
        yield f"{_cut(holding.tag):<{WIDTH}}{human_bytes(holding.nbytes):>12}{holding.blocks:>10}"
    yield from _more(len(held))


def _counted(scope: Scope) -> Iterator[str]:
    yield (
        f"counted: at most {human_bytes(scope.peak_live)} live, {human_bytes(scope.peak_used)} used, "
        f"{human_bytes(scope.peak_reserved)} reserved"
    )
    yield f"{'tag':<{WIDTH}}{'allocs':>10}{'bytes':>12}{'frees':>10}{'peak':>12}{'left':>12}"
    for tag, count in list(_by_peak(scope.tags).items())[:SHOWN]:
        yield (
            f"{_cut(tag):<{WIDTH}}{count.allocs:>10}{human_bytes(count.allocated):>12}{count.frees:>10}"
            f"{human_bytes(count.peak):>12}{human_bytes(count.left):>12}"
        )
    yield from _more(len(scope.tags))


def _more(tags: int) -> Iterator[str]:
    if tags > SHOWN:
        yield f"… {tags - SHOWN} more"


def _by_peak(tags: Mapping[str, TagCount]) -> dict[str, TagCount]:
    return dict(sorted(tags.items(), key=lambda item: (-item[1].peak, item[0])))


def _cut(tag: str) -> str:
    name = tag.replace("\n", " ") or NAMELESS
    return name if len(name) < WIDTH else f"{name[: WIDTH - 2]}…"


def _scope_json(scope: Scope) -> dict[str, object]:
    return {
        "live": scope.live,
        "peak_live": scope.peak_live,
        "peak_used": scope.peak_used,
        "peak_reserved": scope.peak_reserved,
        "tags": {tag: asdict(count) for tag, count in _by_peak(scope.tags).items()},
    }
