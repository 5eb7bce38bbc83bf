"""Plans as JSON, version 1; `symalloc/report/schema/plan-1.json` describes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from symalloc.planner.memory_plan import Arena, Placement
from symalloc.planner.memory_report.function_report import (
    FunctionReport,
    MemorySample,
    TvmComparison,
    TvmPlan,
)
from symalloc.planner.memory_report.non_arena import KernelWorkspaceUse
from symalloc.size.expr import Expr

VERSION = 1


def plans_as_json(reports: Sequence[FunctionReport]) -> str:
    """`{"version": 1, "functions": [...]}`; sizes and offsets are Python expressions, in bytes."""
    document = {"version": VERSION, "functions": [_function(s) for s in reports]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def plan_schema_text() -> str:
    """The JSON Schema of a plan report."""
    return (resources.files("symalloc.report") / "schema" / "plan-1.json").read_text(encoding="utf-8")


def _function(report: FunctionReport) -> dict[str, Any]:
    return {
        "function": report.plan.function,
        "arenas": [_arena(arena) for arena in report.plan.arenas],
        "floor": [
            {"device": floor.device, "scope": floor.scope, "sums": [str(total) for total in floor.sums]}
            for floor in report.floor
        ],
        "offsets": report.offsets,
        "guards": [
            {
                "condition": str(guard.condition),
                "check": str(guard.check),
                "after": guard.defined_by.name if guard.defined_by else None,
            }
            for guard in report.plan.guards
        ],
        "returned": [_size(r.nbytes) for r in report.outside.returned],
        "carried": [
            {"output": c.output, "input": c.input, "bytes": _size(c.nbytes), "room": _size(c.room)}
            for c in report.outside.donated
        ],
        "made": [{"by": m.by, "bytes": _size(m.nbytes)} for m in report.outside.made],
        "unplanned": [
            {"name": u.name, "bytes": _size(u.nbytes), "reason": u.reason} for u in report.unplanned
        ],
        "kernels": [_kernel(use) for use in report.outside.kernels],
        "packed": list(report.outside.packed),
        "tvm": _comparison(report.comparison),
        "samples": [_sample(sample) for sample in report.samples],
    }


def _arena(arena: Arena) -> dict[str, Any]:
    return {
        "device": arena.device,
        "scope": arena.scope,
        "after": arena.defined_by.name if arena.defined_by else None,
        "bytes": str(arena.size),
        "buffers": [_buffer(placement) for placement in arena.placements],
    }


def _buffer(placement: Placement) -> dict[str, Any]:
    buffer = placement.buffer
    return {
        "id": buffer.id,
        "name": buffer.name,
        "callee": buffer.callee,
        "offset": str(placement.offset),
        "bytes": str(buffer.size),
        "live": [list(interval) for interval in buffer.live],
    }


def _kernel(use: KernelWorkspaceUse) -> dict[str, Any]:
    scratch = use.scratch
    return {
        "name": use.kernel,
        "calls": use.calls,
        "bytes": str(scratch.peak) if scratch.problem is None else None,
        "problem": scratch.problem,
        "parallel": scratch.parallel,
    }


def _sample(sample: MemorySample) -> dict[str, Any]:
    return {
        "binding": dict(sample.binding),
        "label": sample.label or None,
        "arena": sample.arena,
        "floor": sample.floor,
        "ratio": sample.ratio,
        "unshared": sample.unshared,
        "saved": sample.saved,
        "returned": sample.returned,
        "carried": sample.donated,
        "made": sample.made,
        "unplanned": sample.unplanned,
        "workspace": sample.workspace,
        "pool": sample.pool,
        "whole": sample.whole,
        "whole_ratio": sample.whole_ratio,
        "tvm_bounded": sample.bounded,
        "tvm_unbounded": sample.unbounded,
        "refused": sample.refused,
    }


def _comparison(found: TvmComparison | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"bounded": _tvm_plan(found.bounded), "unbounded": _tvm_plan(found.unbounded)}


def _tvm_plan(plan: TvmPlan | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    return {
        "storages": [_size(size) for size in plan.storages],
        "fresh": [_size(size) for size in plan.fresh],
        "calls": [[_size(size) for size in sizes] for sizes in plan.calls],
        "problem": plan.problem,
    }


def _size(size: Expr | None) -> str | None:
    return None if size is None else str(size)
