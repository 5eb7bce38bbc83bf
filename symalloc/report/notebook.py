"""Plans, reports of the linter and pools in a notebook: small pieces of HTML that load nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from symalloc.linter.diagnostic import Report
from symalloc.planner.memory_plan import Plan
from symalloc.planner.memory_report.device_budget import DeviceBudget
from symalloc.planner.memory_report.fits import FunctionFit
from symalloc.planner.memory_report.function_report import MemorySample, sample_at
from symalloc.planner.memory_report.module_report import ModuleReport
from symalloc.planner.plan_diff.compare_plans import PlanDiff
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.prover.verdict import Proof
from symalloc.report.budget_text import budget_text
from symalloc.report.diff_text import measures, plan_diff_text
from symalloc.report.plan_text import fit_lines, gain_text, plans_as_text
from symalloc.report.quantities import binding_text, human_bytes
from symalloc.report.text import render_text
from symalloc.shown import to_html, to_text

MOST_ROWS = 40
MOST_PLANS = 4


to_text.register(Report, lambda report: render_text(report).rstrip("\n"))
to_text.register(DeviceBudget, lambda budget: budget_text(budget).rstrip("\n"))
to_text.register(PlanDiff, lambda diff: plan_diff_text(diff).rstrip("\n"))
to_text.register(ModuleReport, lambda module: plans_as_text(module.reports).rstrip("\n"))
to_text.register(FunctionFit, lambda fit: "\n".join(fit_lines(fit)))
to_text.register(MemorySample, gain_text)


@to_html.register
def plan_html(plan: Plan) -> str:
    """Return the arenas of a plan with their formulas, and what is checked at entry."""
    rows = [
        (str(number), str(len(arena.placements)), f"{arena.size} B")
        for number, arena in enumerate(plan.arenas, 1)
    ]
    checks = "; ".join(str(guard.condition) for guard in plan.guards)
    checked = f"<div>checked: {escape(checks)}</div>" if checks else ""
    return f"<div>{escape(repr(plan))}{_table(('arena', 'tensors', 'size'), rows)}{checked}</div>"


@to_html.register
def module_html(module: ModuleReport) -> str:
    """Return what the plans of a module's first functions gain, and their arenas."""
    parts = [f"<div>and {len(module.reports) - MOST_PLANS} more</div>"] * (len(module.reports) > MOST_PLANS)
    for report in reversed(module.reports[:MOST_PLANS]):
        sizes = report.shown_first
        known = {name: sizes[name] for name in report.samples[0].binding} if report.samples else {}
        gained = gain_text(sample_at(report, known, None))
        parts.insert(0, f"<div><b>{escape(gained)}</b></div>{plan_html(report.plan)}")
    return "".join(parts)


@to_html.register
def diff_html(diff: PlanDiff) -> str:
    """Return what each function took before and takes after, and what is proved of that."""
    rows = [(one.function, *told) for one in diff.functions for told in measures(one)]
    rows += [(name, "", "", "", "new") for name in diff.new]
    rows += [(name, "", "", "", "gone") for name in diff.gone]
    return f"<div>{escape(repr(diff))}{_table(('function', '', 'before', 'after', ''), rows)}</div>"


@to_html.register
def proof_html(proof: Proof) -> str:
    """Return a verdict, and what was found on the way."""
    return f"<div><b>{proof.verdict.value}</b>{_table(('', ''), list(proof.facts()))}</div>"


@to_html.register
def report_html(report: Report) -> str:
    """Return the findings as a table."""
    rows = []
    for d in report:
        span = report.file_span(d)
        where = d.function if span is None else f"{span.file}:{span.line}:{span.column}"
        rows.append((d.severity.value, d.rule, d.one_line, where, binding_text(d.counterexample or {})))
    heads = ("severity", "rule", "finding", "where", "counterexample")
    return f"<div>{escape(repr(report))}{_table(heads, rows)}</div>"


@to_html.register
def pool_html(pool: InstrumentedPool) -> str:
    """Return the bytes of a pool, and who holds them."""
    now = pool.statistics()
    amounts = [
        ("live", human_bytes(now.live), ""),
        ("used", human_bytes(now.used), human_bytes(now.peak_used)),
        ("reserved", human_bytes(now.reserved), human_bytes(now.peak_reserved)),
    ]
    held = [(h.tag or "(no tag)", human_bytes(h.nbytes), str(h.blocks)) for h in pool.leaks()]
    return (
        f"<div>{escape(repr(pool))}{_table(('bytes', 'now', 'at most'), amounts)}"
        f"{_table(('held by', 'bytes', 'blocks'), held)}</div>"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; of many rows the first."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows[:MOST_ROWS]
    )
    more = f"<div>and {len(rows) - MOST_ROWS} more</div>" if len(rows) > MOST_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
