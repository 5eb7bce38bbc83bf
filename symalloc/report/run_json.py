"""Figures of a run, as JSON: `symalloc/report/schema/run-1.json` describes it."""

from __future__ import annotations

import json
from statistics import median

from symalloc.planner.memory_report.runs import Output, Peer, PoolUse, RunReport, RunResult


def run_as_json(report: RunReport) -> str:
    """`{"version": 1, "runs": […], "pool": …, "tvm": …, "refused": …}`; sizes are bytes, times seconds."""
    peers = [None] * len(report.results) if report.peer is None else report.peer.seconds
    document = {
        "version": 1,
        "ok": report.ok,
        "runs": [_run(r, theirs) for r, theirs in zip(report.results, peers, strict=True)],
        "pool": _pool(report.pool),
        "tvm": _peer(report.peer),
        "refused": None
        if report.refused is None
        else {"message": report.refused, "binding": report.refused_at},
    }
    return json.dumps(document, indent=2) + "\n"


def _run(result: RunResult, theirs: float | None) -> dict[str, object]:
    return {
        "function": result.function,
        "binding": dict(result.binding),
        "plan": result.plan,
        "calls": len(result.seconds),
        "seconds": round(median(result.seconds), 9),
        "tvm_seconds": None if theirs is None else round(theirs, 9),
        "tensors_planned": result.planned,
        "arena": result.arena_bytes if result.plan == "symalloc" else None,
        "floor": result.floor_bytes,
        "ratio": None if result.ratio is None else round(result.ratio, 6),
        "outputs": [_output(o) for o in result.outputs],
        "pool": _pool(result.pool),
        "same_as_unplanned": result.difference is None if result.checked else None,
        "difference": result.difference,
    }


def _output(output: Output) -> dict[str, object]:
    return {"shape": list(output.shape), "dtype": output.dtype, "bytes": output.nbytes}


def _pool(pool: PoolUse | None) -> dict[str, object] | None:
    if pool is None:
        return None
    return {
        "calls": pool.calls,
        "allocations": pool.allocations,
        "peak_live": pool.peak_live,
        "peak_reserved": pool.peak_reserved,
        "ratio": round(pool.ratio, 6),
        "commits": pool.commits,
        "decommits": pool.decommits,
    }


def _peer(peer: Peer | None) -> dict[str, object] | None:
    return None if peer is None else {"reserved": peer.reserved}
