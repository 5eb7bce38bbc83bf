"""Plans as JSON, version 1; `symalloc/report/schema/plan-1.json` describes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from symalloc.analysis.tensor_origin import NO_ORIGIN, TensorOrigin
from symalloc.planner.memory_plan import Arena, FurtherArena, Placement
from symalloc.planner.memory_report.call_peak import CallPeak
from symalloc.planner.memory_report.fitting import Fit, FunctionFit
from symalloc.planner.memory_report.function_report import (
    FloorSums,
    FunctionReport,
    MemorySample,
)
from symalloc.planner.memory_report.non_arena import KernelWorkspaceUse
from symalloc.planner.memory_report.plan_outcome import TvmPlan
from symalloc.planner.memory_report.target_report import TargetReport
from symalloc.program.ir import Var
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr

VERSION = 1


def plans_as_json(reports: Sequence[FunctionReport], fits: Sequence[FunctionFit] = ()) -> str:
    """`{"version": 1, "functions": [...]}`; sizes and offsets are Python expressions, in bytes.

    `fits`: where each function fits, if that was asked.
    """
    functions = [function_document(s) for s in reports]
    for document, fit in zip(functions, fits, strict=False):
        document["fits"] = {
            "arenas": _fit(fit.arenas),
            "call": _fit(fit.call),
        }
    document = {"version": VERSION, "functions": functions}
    return json.dumps(document, indent=2, ensure_ascii=False, default=_plain) + "\n"


def plan_schema_text() -> str:
    """The JSON Schema of a plan report."""
    return (resources.files("symalloc.report") / "schema" / "plan-1.json").read_text(encoding="utf-8")


def function_document(report: FunctionReport) -> dict[str, Any]:
    """The report of one function, in which sizes, offsets and conditions are still objects."""
    outside = report.outside
    return {
        "function": report.plan.function,
        "arenas": [_arena(arena, report.origins) for arena in report.plan.arenas],
        "floor": [_floor(floor) for floor in report.floor],
        "reserved": report.reserved,
        "held": report.held,
        "bounds": {
            name: [report.lower.get(name), report.upper.get(name)]
            for name in sorted(report.lower.keys() | report.upper.keys())
        },
        "signed": sorted(report.signed),
        "offsets": report.offsets,
        "rungs": [
            {"kind": rung.kind, "reason": rung.reason, "ratio": rung.ratio} for rung in report.plan.rungs
        ],
        "guards": [
            {
                "condition": guard.condition,
                "check": guard.check,
                "after": _name(guard.defined_by),
                "declared": guard.declared,
            }
            for guard in report.plan.guards
        ],
        "returned": [r.nbytes for r in outside.returned],
        "carried": [
            {"output": c.output, "input": c.input, "bytes": c.nbytes, "room": c.room} for c in outside.donated
        ],
        "made": [{"by": m.by, "bytes": m.nbytes} for m in outside.made],
        "unplanned": [{"name": u.name, "bytes": u.nbytes, "reason": u.reason} for u in report.unplanned],
        "kernels": [_kernel(use) for use in outside.kernels],
        "packed": outside.packed,
        "tvm": None
        if report.comparison is None
        else {
            "bounded": None if report.comparison.bounded is None else _tvm(report.comparison.bounded),
            "unbounded": _tvm(report.comparison.unbounded),
        },
        "target": None if report.target is None else _target(report.target, report.kept_by_pool),
        "samples": [_sample(sample) for sample in report.samples],
    }


def _fit(fit: Fit) -> dict[str, Any]:
    proof = fit.proof
    return {
        "limit": fit.limit,
        "verdict": proof.verdict.value,
        "condition": proof.precondition,
        "counterexample": None if proof.counterexample is None else dict(proof.counterexample),
        "largest": [
            {"symbol": one.symbol, "at": dict(one.at), "value": one.value, "monotone": one.monotone}
            for one in fit.largest
        ],
    }


def _floor(floor: FloorSums) -> dict[str, Any]:
    return {"device": floor.device, "scope": floor.scope, "sums": floor.sums}


def _arena(arena: Arena, origins: Mapping[Var, TensorOrigin]) -> dict[str, Any]:
    return {
        "device": arena.device,
        "scope": arena.scope,
        "after": _name(arena.defined_by),
        "result": None if arena.result is None else arena.result.name,
        "apart": None if arena.further is None else _further(arena.further),
        "bytes": arena.size,
        "buffers": [_buffer(placement, origins) for placement in arena.placements],
    }


def _further(further: FurtherArena) -> dict[str, Any]:
    return {"reason": further.reason, "saves": further.saves, "binding": further.at}


def _buffer(placement: Placement, origins: Mapping[Var, TensorOrigin]) -> dict[str, Any]:
    buffer = placement.buffer
    origin = NO_ORIGIN if buffer.var is None else origins.get(buffer.var, NO_ORIGIN)
    return {
        "id": buffer.id,
        "name": buffer.name,
        "callee": buffer.callee,
        "operator": origin.operator or None,
        "variable": origin.variable or None,
        "source": origin.source or None,
        "offset": placement.offset,
        "bytes": buffer.size,
        "live": buffer.live,
    }


def _tvm(plan: TvmPlan) -> dict[str, Any]:
    called: dict[int, list[Expr | None]] = {}
    for one in plan.memory.taken():
        if one.frame.caller is not None:
            called.setdefault(id(one.frame), []).append(one.size)
    return {
        "storages": [one.size for one in plan.storages],
        "fresh": [one.size for one in plan.fresh],
        "calls": list(called.values()),
        "problem": plan.problem,
    }


def _kernel(use: KernelWorkspaceUse) -> dict[str, Any]:
    scratch = use.scratch
    return {
        "name": use.kernel,
        "calls": use.calls,
        "bytes": scratch.peak if scratch.problem is None else None,
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
        "call": sample.call,
        "call_unplanned": sample.call_unplanned,
        "call_tvm_bounded": sample.call_bounded,
        "call_tvm_unbounded": sample.call_unbounded,
        "peak": None if sample.peak is None else _peak(sample.peak),
        "refused": sample.refused,
    }


def _peak(peak: CallPeak) -> dict[str, Any]:
    return {
        "bytes": peak.nbytes,
        "operator": peak.operator or None,
        "step": peak.step,
        "steps": peak.steps,
        "tensors": [
            {
                "name": tensor.name,
                "kind": tensor.kind,
                "bytes": tensor.nbytes,
                "operator": tensor.origin.operator or None,
                "variable": tensor.origin.variable or None,
                "source": tensor.origin.source or None,
                "until": tensor.until or None,
                "idle": tensor.idle,
            }
            for tensor in peak.tensors
        ],
        "remedy": None if peak.remedy is None else {"name": peak.remedy.name, "without": peak.without},
    }


def _target(target: TargetReport, kept: int | None) -> dict[str, Any]:
    return {
        "name": target.name,
        "present": target.present,
        "generated": target.generated,
        "flavour": target.flavour,
        "kernels": target.kernels,
        "offset_kernels": target.offset_kernels,
        "grounded": target.grounded,
        "kept": kept,
    }


def _name(variable: Var | None) -> str | None:
    return None if variable is None else variable.name


def _plain(value: object) -> str:
    """Return a size or a condition as text."""
    assert isinstance(value, Expr | Condition), type(value)
    return str(value)
