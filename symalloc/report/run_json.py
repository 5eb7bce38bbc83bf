"""Figures of a run, as JSON: `symalloc/report/schema/run-1.json` describes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median

from symalloc.planner.memory_report.runs import Output, PoolUse, RunReport, RunResult


def run_as_json(report: RunReport) -> str:
    """`{"version": 1, "runs": […], "pool": …, "tvm": …, "refused": …}`; sizes are bytes, times seconds."""
    peers: Sequence[tuple[float, float] | None] = [None] * len(report.results)
    if report.peer is not None:
        peers = list(zip(report.peer.seconds, report.peer.ratios, strict=True))
    document = {
        "version": 1,
        "ok": report.ok,
        "runs": [_run(r, theirs) for r, theirs in zip(report.results, peers, strict=True)],
        "pool": _pool(report.pool),
        "tvm": None if report.peer is None else {"reserved": report.peer.reserved},
        "refused": None
        if report.refused is None
        else {"message": report.refused, "binding": report.refused_at},
    }
    return json.dumps(document, indent=2) + "\n"


def _run(result: RunResult, theirs: tuple[float, float] | None) -> dict[str, object]:
    return {
        "function": result.function,
        "binding": dict(result.binding),
        "plan": result.plan,
        "calls": len(result.seconds),
        "seconds": round(median(result.seconds), 9),
        "tvm_seconds": None if theirs is None else round(theirs[0], 9),
        "time_ratio": None if theirs is None else round(theirs[1], 4),
        "tensors_planned": result.planned,
        "arena": result.arena_bytes if result.plan == "symalloc" else None,
        "floor": result.floor_bytes,
        "ratio": None if result.ratio is None else round(result.ratio, 6),
        "outputs": [_output(o) for o in result.outputs],
        "pool": _pool(result.pool),
        "same_as_unplanned": result.difference is None if result.checked else None,
        "difference": result.difference,
        "undetermined": result.undetermined,
    }


def _output(output: Output) -> dict[str, object]:
    return {"shape": list(output.shape), "dtype": output.dtype, "bytes": output.nbytes}


def _pool(pool: PoolUse | None) -> dict[str, object] | None:
    return None if pool is None else asdict(pool) | {"ratio": round(pool.ratio, 6)}
