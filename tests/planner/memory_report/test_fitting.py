from __future__ import annotations

from dataclasses import replace
from itertools import product

from symalloc.analysis.timeline import Timeline
from symalloc.planner.memory_plan import Plan
from symalloc.planner.memory_report.function_report import (
    FunctionReport,
    PlanOutcome,
    arena_proof,
    fit_function,
    function_report,
)
from symalloc.planner.memory_report.non_arena import NonArenaMemory
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.report.plan_text import fit_lines
from symalloc.size.expr import Expr, constant, floordiv
from tests.report.plan_samples import K, N, arena, arenas_alone, function, placed, timeline


def report(*sizes: Expr, **upper: int) -> FunctionReport:
    """The report of a plan with an arena of each size, all of them held at once."""
    arenas = tuple(arena(size, placed(i, size, 0, (0, 2))) for i, size in enumerate(sizes))
    plan = Plan(function="main", arenas=arenas)
    return function_report(plan, function(**upper), NonArenaMemory(), outcome=arenas_alone(plan))


def test_the_condition_is_exact_and_the_largest_value_is_the_last_that_fits() -> None:
    fit = fit_function(report(64 * N * N, 64 * K), 64 * 100, Prover()).arenas
    assert fit.proof.verdict is Verdict.RUNTIME_CHECK
    by_name = {one.symbol: one for one in fit.largest}
    assert (by_name["n"].value, by_name["k"].value) == (9, 99)  # the other is 1
    assert by_name["n"].at == {"k": 1}
    condition = fit.proof.precondition
    if condition is not None:
        for n, k in product(range(12), range(0, 110, 3)):
            assert condition.evaluate({"n": n, "k": k}) == (n * n + k <= 100)


def test_what_does_not_grow_with_a_symbol_has_no_largest_value() -> None:
    sawtooth = 640 - 64 * (N - 10 * floordiv(N, 10))
    (one,) = fit_function(report(sawtooth), 320, Prover()).arenas.largest
    assert (one.monotone, one.value) == (False, None)


def test_nothing_fits_and_everything_fits() -> None:
    none = fit_function(report(64 * N + 128), 127, Prover()).arenas
    assert none.proof.verdict is Verdict.ALWAYS_INVALID and none.largest[0].value is None
    everything = fit_function(report(constant(64)), 64, Prover()).arenas
    assert everything.proof.holds and everything.largest == ()
    bounded = fit_function(report(64 * floordiv(N, N + 1)), 64, Prover()).arenas
    assert bounded.proof.holds and (bounded.largest[0].unbounded or not bounded.largest[0].monotone)


def test_declared_bounds_count_for_the_arena_alone() -> None:
    bounded = report(64 * N, n=64)
    assert arena_proof(bounded, 64 * 64, Prover()).holds
    proof = arena_proof(bounded, 64 * 64 - 1, Prover())
    assert proof.smallest and proof.counterexample == {"n": 64}
    assert arena_proof(replace(bounded, upper={}), 64 * 64, Prover()).counterexample == {"n": 65}
    assert fit_function(bounded, 64 * 64, Prover()).arenas.largest[0].value == 64


def test_of_memory_that_is_not_known_only_that_nothing_fits_is_proved() -> None:
    whole = timeline((64 * N + 64, 0, 1, "storage"), (64, 0, 1, "packed"))
    cache = replace(whole.reservations[1], size=None)
    known = report(64 * N + 64)
    outcome = replace(known.outcome, planned=replace(whole, reservations=[whole.reservations[0], cache]))
    doubtful = replace(known, outcome=outcome)
    fit = fit_function(doubtful, 640, Prover())
    assert [*fit_lines(fit)] == [
        "main: fits 640 B (640 B), without weights, inputs and workspace",
        "  arenas: exactly when n <= 9 (proved)",
        "    largest n: 9",
        "  whole call: not proved: the size of `held1` is not known",
        "    largest n: 9, by what is known",
    ]
    assert not fit.call.proof.holds and fit.call.proof.precondition is None
    assert fit_function(doubtful, 2**80, Prover()).call.proof.verdict is Verdict.RUNTIME_CHECK
    nowhere = fit_function(doubtful, 63, Prover()).call
    assert nowhere.proof.verdict is Verdict.ALWAYS_INVALID


def test_nothing_is_proved_of_a_function_that_calls_itself() -> None:
    endless = replace(report(constant(64)), outcome=PlanOutcome(planned=Timeline(problem="it calls itself")))
    fit = fit_function(endless, 640, Prover())
    assert [line for line in fit_lines(fit) if "proved" in line] == [
        "  arenas: not proved: it calls itself",
        "  whole call: not proved: it calls itself",
    ]
    assert not arena_proof(endless, 640, Prover()).holds and endless.reserved is None
