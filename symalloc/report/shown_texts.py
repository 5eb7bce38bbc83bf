"""The texts by which results print themselves."""

from __future__ import annotations

from symalloc.linter.diagnostic import Report
from symalloc.planner.memory_plan import Plan
from symalloc.planner.memory_report.deployment import FunctionFit, ModuleReport
from symalloc.planner.memory_report.device_budget import DeviceBudget
from symalloc.planner.memory_report.function_report import MemorySample
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.prover.domain import Proof
from symalloc.report.budget_text import budget_text
from symalloc.report.plan_diff import PlanDiff, plan_diff_text
from symalloc.report.plan_text import fit_lines, gain_text, plan_text, plans_as_text
from symalloc.report.pool_use import pool_report
from symalloc.report.text import render_text
from symalloc.shown import to_text

to_text.register(Report, lambda report: render_text(report).rstrip("\n"))
to_text.register(DeviceBudget, lambda budget: budget_text(budget).rstrip("\n"))
to_text.register(PlanDiff, lambda diff: plan_diff_text(diff).rstrip("\n"))
to_text.register(ModuleReport, lambda module: plans_as_text(module.reports).rstrip("\n"))
to_text.register(FunctionFit, lambda fit: "\n".join(fit_lines(fit)))
to_text.register(MemorySample, gain_text)
to_text.register(Plan, plan_text)
to_text.register(InstrumentedPool, lambda pool: pool_report(pool).rstrip("\n"))


@to_text.register
def proof_text(proof: Proof) -> str:
    """Return a verdict, and what was found on the way."""
    return "\n".join((proof.verdict.value, *(f"  {name}: {said}" for name, said in proof.facts())))
