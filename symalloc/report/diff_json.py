"""The difference between two plans as JSON, version 1; `symalloc/report/schema/diff-1.json` describes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from symalloc.planner.plan_diff.compare_plans import FunctionDiff, MeasureChange, PlanDiff, SampleChange
from symalloc.planner.plan_diff.plan_record import TensorRecord
from symalloc.size.expr import Expr

VERSION = 1


def plan_diff_json(diff: PlanDiff) -> str:
    """`{"version": 1, "grew": …, "functions": […], "new": […], "gone": […]}`; sizes are in bytes.

    Of the sums in `before` and `after` the largest is the size.
    """
    document = {
        "version": VERSION,
        "grew": diff.grew,
        "functions": [_function(one) for one in diff.functions],
        "new": diff.new,
        "gone": diff.gone,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def diff_schema_text() -> str:
    """The JSON Schema of a difference."""
    return (resources.files("symalloc.report") / "schema" / "diff-1.json").read_text(encoding="utf-8")


def _function(one: FunctionDiff) -> dict[str, Any]:
    return {
        "function": one.function,
        "grew": one.grew,
        "peak": one.peak.measure,
        "measures": {change.measure: _measure(change) for change in one.measures},
        "guards": {"new": one.guards_new, "gone": one.guards_gone},
        "tensors": {
            "new": [_tensor(t) for t in one.tensors.new],
            "gone": [_tensor(t) for t in one.tensors.gone],
            "resized": [{"before": _tensor(a), "after": _tensor(b)} for a, b in one.tensors.resized],
            "moved": [{"before": _tensor(a), "after": _tensor(b)} for a, b in one.tensors.moved],
        },
        "samples": [_sample(sample) for sample in one.samples],
    }


def _measure(change: MeasureChange) -> dict[str, Any]:
    grown = change.grown
    return {
        "before": _sums(change.before),
        "after": _sums(change.after),
        "trend": change.trend.value,
        "reason": change.reason or None,
        "grown": None
        if grown is None
        else {
            "binding": dict(grown.binding),
            "before": grown.before,
            "after": grown.after,
            "proved": grown.proved,
            "smallest": grown.smallest,
            "always": grown.always,
        },
    }


def _sums(sums: Sequence[Expr] | None) -> list[str] | None:
    return None if sums is None else [str(one) for one in sums]


def _tensor(one: TensorRecord) -> dict[str, Any]:
    return {
        "name": one.name,
        "operator": one.operator,
        "callee": one.callee,
        "bytes": str(one.size),
        "offset": str(one.offset),
    }


def _sample(sample: SampleChange) -> dict[str, Any]:
    was, now = sample.ratios()
    return {
        "binding": dict(sample.binding),
        "counts": sample.counts,
        "before": dict(sample.before),
        "after": dict(sample.after),
        "factor": sample.factor("call"),
        "ratio_before": was,
        "ratio_after": now,
    }
