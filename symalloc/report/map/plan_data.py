"""The data of a page about plans: the plan's JSON with its formulas in a table, and what calls hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from symalloc.analysis.timeline import Timeline
from symalloc.linter.diagnostic import Diagnostic, Report
from symalloc.planner.memory_report.function_report import FunctionReport
from symalloc.planner.memory_report.plan_outcome import TvmPlan
from symalloc.report.map.formula_table import FormulaTable, exact
from symalloc.report.plan_json import function_document
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr


def plan_data(reports: Sequence[FunctionReport], lint: Report, *, title: str) -> dict[str, Any]:
    """`{"kind": "plan", "title", "nodes", "formulas", "findings", "functions"}`.

    A function is as in the plan's JSON, with formulas as `{"f": number}`, and has besides: `reserved`, the
    sums of arenas that are reserved together; `returned` in its buffers; `calls`, what a call holds, by who
    planned; `symbols`, with the bounds that are declared; and `start`, the binding that is shown first.
    """
    table = FormulaTable()
    functions = [_function(report, table) for report in reports]
    return {
        "kind": "plan",
        "title": title,
        "functions": functions,
        "findings": [_finding(d) for d in lint],
        "nodes": table.nodes,
        "formulas": table.formulas,
    }


def _function(report: FunctionReport, table: FormulaTable) -> dict[str, Any]:
    table.symbols.clear()
    plain = function_document(report)
    for sample in plain["samples"]:
        del sample["peak"]  # the page finds it at any binding
    document: dict[str, Any] = _encoded(plain, table)
    for arena, written in zip(report.plan.arenas, document["arenas"], strict=True):
        for placement, buffer in zip(arena.placements, written["buffers"], strict=True):
            buffer["returned"] = placement.buffer.returned
    document["reserved"] = _encoded(report.reserved, table)
    document["calls"] = _calls(report, table)
    names = sorted(table.symbols)
    document["symbols"] = [{"name": n, "upper": _encoded(report.upper.get(n), table)} for n in names]
    start = {**dict.fromkeys(names, 1), **_shown_first(report)}
    document["start"] = {name: str(start[name]) for name in names}
    return document


def _shown_first(report: FunctionReport) -> Mapping[str, int]:
    bound = [s for s in report.samples if s.label == "bound"]
    samples = bound or report.samples
    return samples[-1].binding if samples else {}


def _encoded(value: Any, table: FormulaTable) -> Any:
    """Return plain JSON: formulas by number, integers that a browser would round as text."""
    match value:
        case Expr() | Condition():
            return {"f": table.add(value)}
        case bool():
            return value
        case int():
            return exact(value)
        case Mapping():
            return {str(key): _encoded(item, table) for key, item in value.items()}
        case list() | tuple():
            return [_encoded(item, table) for item in value]
    return value


# -- what a call holds -------------------------------------------------------------------------------------


def _calls(report: FunctionReport, table: FormulaTable) -> dict[str, Any]:
    """Return what a call holds, by who planned it; null where nobody did, or a function calls itself."""
    outcome, compared = report.outcome, report.comparison
    timelines = {
        "ours": outcome.planned,
        "unplanned": outcome.unplanned,
        "tvm_bounded": None if compared is None else _timeline_of(compared.bounded),
        "tvm_unbounded": None if compared is None else _timeline_of(compared.unbounded),
    }
    found = {
        who: None if one is None or one.problem is not None else _held(one) for who, one in timelines.items()
    }
    return {**_encoded(found, table), "fallback": outcome.fallback}


def _timeline_of(plan: TvmPlan | None) -> Timeline | None:
    return None if plan is None or plan.problem is not None else plan.memory


def _held(timeline: Timeline) -> dict[str, Any]:
    """`{"steps": count, "held": [[bytes, begin, end, why], …]}`; see `Reservation`."""
    held = [[one.size, one.begin, one.end, one.why] for one in timeline.reservations]
    return {"steps": len(timeline.steps), "held": held}


# -- findings ----------------------------------------------------------------------------------------------


def _finding(found: Diagnostic) -> dict[str, Any]:
    """Return a finding; `binds` is the variable of the instruction at fault, or empty."""
    at = found.counterexample
    return {
        "rule": found.rule,
        "severity": found.severity.value,
        "message": " ".join(found.message.split()),
        "function": found.function,
        "binds": found.binds,
        "at": "" if at is None else ", ".join(f"{name} = {value}" for name, value in at.items()),
    }
