from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from symalloc.analysis.call_memory import CalleeMemory, CallMemory, HeldMemory
from symalloc.analysis.held_moments import call_sums
from symalloc.planner.memory_plan import Plan
from symalloc.planner.memory_report.fitting import LARGEST, arena_proof, fit_function
from symalloc.planner.memory_report.function_report import FunctionReport, function_report
from symalloc.planner.memory_report.non_arena import NonArenaMemory
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.size.expr import Expr, constant, floordiv, symbol
from tests.report.plan_samples import K, N, arena, function, placed


def report(*sizes: Expr, **upper: int) -> FunctionReport:
    """The report of a plan with an arena of each size, all of them held at once."""
    arenas = tuple(arena(size, placed(i, size, 0, (0, 2))) for i, size in enumerate(sizes))
    return function_report(Plan(function="main", arenas=arenas), function(**upper), NonArenaMemory())


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
    assert fit_function(bounded, 64 * 64, Prover()).arenas.largest[0].value == 64 < LARGEST


def test_the_sums_of_a_call_are_its_peak_at_every_shape() -> None:
    def held(size: Expr, begin: int, end: int, *, called: bool = False) -> HeldMemory:
        return HeldMemory(size=size, begin=begin, end=end, called=called)

    inner = CallMemory(fresh=(held(64 * symbol("m"), 0, 1),), results=(held(4 * symbol("m"), 1, 2),))
    callee = CalleeMemory(point=2, memory=inner, values={"m": 3 * N}, name="layer")
    path = CallMemory(
        fresh=(held(4 * N, 0, 2), held(512 * K, 1, 1), held(12 * N, 2, 5, called=True)),
        results=(held(100 * K, 4, 6),),
        callees=(callee,),
    )
    memory = CallMemory(paths=(path, CallMemory(storages=(held(1000 * K, 0, 1),))))
    sums = call_sums(memory)
    assert sums is not None
    for n, k in product((0, 1, 5, 40), repeat=2):
        binding = {"n": n, "k": k}
        assert max(one.evaluate(binding) for one in sums) == memory.peak(binding, results=True)


@pytest.mark.parametrize("values", [{}, {"m": N}])
def test_a_call_of_unknown_size_is_no_formula(values: dict[str, Expr]) -> None:
    inner = CallMemory(fresh=(HeldMemory(size=symbol("m") if not values else None, begin=0, end=1),))
    assert call_sums(CallMemory(callees=(CalleeMemory(point=0, memory=inner, values=values),))) is None
