from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from symalloc.analysis.timeline import Timeline
from symalloc.linter.lint_options import parse_assumptions
from symalloc.planner.memory_plan import Plan
from symalloc.planner.memory_report.deployment import Asked, Fit, FunctionFit, fit_function, function_memory
from symalloc.planner.memory_report.function_report import FunctionReport, PlanOutcome, function_report
from symalloc.planner.memory_report.non_arena import KernelUse, KernelWorkspace, NonArenaMemory, WorkspaceStep
from symalloc.prover.domain import Verdict
from symalloc.prover.prover import Prover
from symalloc.report.plan_text import fit_lines
from symalloc.size.expr import Expr, constant, floordiv, symbol
from tests.report.plan_samples import K, N, arena, arenas_alone, function, placed, timeline


def report(*sizes: Expr, **upper: int) -> FunctionReport:
    """The report of a plan with an arena of each size, all of them held at once."""
    arenas = tuple(arena(size, placed(i, size, 0, (0, 2))) for i, size in enumerate(sizes))
    plan = Plan(function="main", arenas=arenas)
    return function_report(plan, function(**upper), NonArenaMemory(), outcome=arenas_alone(plan))


def fitted(report: FunctionReport, limit: int, **more: Any) -> FunctionFit:
    made = replace(function(), declared_upper=report.upper)
    memory = function_memory(made, report, {}, "cpu")
    return fit_function(memory, Asked(limit=limit, **more), Prover())


def arenas(report: FunctionReport, limit: int, **more: Any) -> Fit:
    return fitted(report, limit, **more).sums["arenas"]


def test_the_condition_is_exact_and_coupled_symbols_are_told_together() -> None:
    fit = arenas(report(64 * N * N, 64 * K), 64 * 100)
    assert fit.proof.verdict is Verdict.RUNTIME_CHECK
    (alike,) = fit.largest
    assert (alike.symbol, alike.alike, alike.value) == ("k", ("n",), 9)  # 81 + 9 <= 100
    assert fit.trade is not None and (fit.trade.symbol, fit.trade.other) == ("k", "n")
    for k, most in fit.trade.rows:
        assert most is not None and most**2 + k <= 100 < (most + 1) ** 2 + k
    condition = fit.proof.precondition
    if condition is not None:
        for n, k in product(range(12), range(0, 110, 3)):
            assert condition.evaluate({"n": n, "k": k}) == (n * n + k <= 100)
    bound = arenas(report(64 * N * N, 64 * K), 64 * 100, values={"k": 19})
    assert [(one.symbol, dict(one.at), one.value) for one in bound.largest] == [("n", {"k": 19}, 9)]
    assert str(bound.proof.precondition) == "n <= 9" and bound.trade is None
    lines = fitted(report(64 * N * N, 64 * K), 64 * 100).sums.values()
    assert len({tuple(step for step, _ in one.trade.rows) for one in lines if one.trade}) == 1
    three = arenas(report(64 * N * K * symbol("b")), 6400)
    assert three.largest[0].alike == ("k", "n") and three.largest[0].value == 4
    assert three.trade is not None and three.trade.rows[0] == (1, 10)


def test_what_does_not_grow_with_a_symbol_has_no_largest_value() -> None:
    sawtooth = 640 - 64 * (N - 10 * floordiv(N, 10))
    (one,) = arenas(report(sawtooth), 320).largest
    assert (one.monotone, one.value) == (False, None)


def test_nothing_fits_and_everything_fits() -> None:
    none = arenas(report(64 * N + 128), 127)
    assert none.proof.verdict is Verdict.ALWAYS_INVALID and none.largest[0].value is None
    everything = arenas(report(constant(64)), 64)
    assert everything.proof.holds and everything.largest == ()
    bounded = arenas(report(64 * floordiv(N, N + 1)), 64)
    assert bounded.proof.holds and (bounded.largest[0].unbounded or not bounded.largest[0].monotone)


def test_declared_bounds_and_assumptions_are_told_apart_from_every_shape() -> None:
    bounded = report(64 * N, n=64)
    fit = arenas(bounded, 64 * 64)
    assert fit.holds and fit.within is not None and not fit.proof.holds
    assert fit.proof.counterexample == {"n": 65} and fit.largest[0].value == 64
    assert "exactly when n <= 64 (proved); at every shape within the declared bounds (proved)" in "".join(
        fit_lines(fitted(bounded, 64 * 64))
    )
    within = arenas(bounded, 64 * 64 - 1).within
    assert within is not None and within.smallest and within.counterexample == {"n": 64}
    assert not arenas(bounded, 64 * 64 - 1).holds and arenas(replace(bounded, upper={}), 4096).within is None
    assumed = parse_assumptions(["n <= 63"])
    assert arenas(bounded, 64 * 64 - 1, assume=assumed).proof.holds
    assert not arenas(bounded, 64 * 63 - 1, assume=assumed).holds


def test_each_line_adds_what_the_line_before_leaves_out() -> None:
    kernel = KernelWorkspace(steps=(WorkspaceStep(0, 64 * N), WorkspaceStep(0)))
    outside = NonArenaMemory(calls=(kernel,), kernels=(KernelUse.of("softmax", kernel),))
    call = replace(report(64 * N), outside=outside)
    memory = replace(
        function_memory(function(), call, {}, "cpu"), inputs=32 * N, kept=64 * N, symbols=frozenset("nk")
    )
    fit = fit_function(memory, Asked(limit=2**20), Prover(), constants=2**10)
    most = [one.largest[0].value for one in fit.sums.values()]
    held = [lambda n: 64 * n, lambda n: 128 * n, lambda n: 128 * n + max(4096, -(-64 * n // 4096) * 4096)]
    assert most[0] == most[1] == 2**14
    for value, taken in zip(most[2:], [*held[1:], lambda n: held[2](n) + 32 * n + 2**10], strict=True):
        assert value is not None and taken(value) <= 2**20 < taken(value + 1)


def test_workspace_that_a_path_does_not_take_is_no_proof_that_nothing_fits() -> None:
    kernel = KernelWorkspace(steps=(WorkspaceStep(0, constant(8192)), WorkspaceStep(0)))
    for branches, verdict in ((True, Verdict.RUNTIME_CHECK), (False, Verdict.ALWAYS_INVALID)):
        outside = NonArenaMemory(calls=(kernel,), branches=branches)
        fit = fitted(replace(report(64 * N), outside=outside), 4096)
        assert (fit.workspace.proof.verdict, fit.workspace.exact) == (verdict, not branches)
        assert fit.again.exact


def test_of_memory_that_is_not_known_only_that_nothing_fits_is_proved() -> None:
    whole = timeline((64 * N + 64, 0, 1, "storage"), (64, 0, 1, "tensor"))
    cache = replace(whole.reservations[1], size=None)
    known = report(64 * N + 64)
    outcome = replace(known.outcome, planned=replace(whole, reservations=[whole.reservations[0], cache]))
    doubtful = replace(known, outcome=outcome)
    fit = fitted(doubtful, 640)
    said = [*fit_lines(fit)]
    assert said[:3] == [
        "main: fits 640 B (640 B)",
        "  arenas: exactly when n <= 9 (proved)",
        "  whole call: not proved: the size of `held1` is not known",
    ]
    assert all("not proved: the size of `held1`" in line for line in said[2:6])
    assert said[-1].split() == ["n", "9", *["<=", "9"] * 4]
    assert not fit.sums["call"].proof.holds and fit.sums["call"].proof.precondition is None
    assert fitted(doubtful, 2**80).sums["call"].proof.verdict is Verdict.RUNTIME_CHECK
    assert fitted(doubtful, 63).sums["call"].proof.verdict is Verdict.ALWAYS_INVALID


def test_nothing_is_proved_of_a_function_that_calls_itself() -> None:
    endless = replace(report(constant(64)), outcome=PlanOutcome(planned=Timeline(problem="it calls itself")))
    lines = [line for line in fit_lines(fitted(endless, 640)) if "proved" in line]
    assert len(lines) == 5 and all("not proved: it calls itself" in line for line in lines)
    assert not arenas(endless, 640).holds and endless.reserved is None
