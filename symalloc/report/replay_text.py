"""Replayed traces for a person, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby

from symalloc.pool.replaying import PolicySummary, Replayed, total
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


def replays_as_json(results: Sequence[Replayed]) -> str:
    """`{"version": 1, "results": [...], "totals": [...]}`; sizes are bytes."""
    document = {
        "version": 1,
        "results": [_result_json(r) for r in results],
        "totals": [
            {"policy": t.policy, "geometric_mean": round(t.mean, 6), "worst": round(t.worst, 6)}
            for t in _totals(results)
        ],
    }
    return json.dumps(document, indent=2) + "\n"


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


def _result_json(result: Replayed) -> dict[str, object]:
    return asdict(result) | {
        "ratio": round(result.ratio, 6),
        "seconds": round(result.seconds, 6),
        "operations_per_second": round(result.rate),
    }
