"""Replayed traces for a person, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from symalloc.pool.replaying import PolicySummary, Replayed, total
from symalloc.report.document import Document, as_json, record
from symalloc.report.quantities import human_bytes

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


class ReplayedTrace(Document, frozen=True, kw_only=True):
    """One trace on one policy; sizes are bytes, `ratio` is peak reserved to peak live.

    `out_of_memory`: the event that ran out of memory; figures go as far as that.
    """

    trace: str
    policy: str
    operations: int
    peak_live: int
    peak_reserved: int
    seconds: float
    left_live: int
    commits: int
    decommits: int
    bytes_given_back: int
    out_of_memory: str | None
    ratio: float
    operations_per_second: int


class ReplayDocument(Document, frozen=True, kw_only=True, tag_field="version", tag=1):
    """Traces replayed on policies."""

    results: tuple[ReplayedTrace, ...]
    totals: tuple[PolicySummary, ...]


def replays_as_json(results: Sequence[Replayed]) -> str:
    """Return the same as a `ReplayDocument`."""
    return as_json(ReplayDocument(results=tuple(map(_result, results)), totals=tuple(_totals(results))))


def _result(one: Replayed) -> ReplayedTrace:
    ratio, seconds = round(one.ratio, 6), round(one.seconds, 6)
    return record(ReplayedTrace, one, ratio=ratio, seconds=seconds, operations_per_second=round(one.rate))


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
            f"{r.rate:.0f}",
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
