"""The validator, on plans that are wrong in one way each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.check.obligations import ArenaObligations, Obligation
from symalloc.planner.check.validate import ObligationProver, validate
from symalloc.planner.memory_plan import Arena, Guard, Placement, Plan
from symalloc.planner.overflow_guards import overflow_guards
from symalloc.prover.domain import Domain, Verdict
from symalloc.prover.prover import Prover
from symalloc.size.choice import maximum
from symalloc.size.expr import Expr, constant, round_up, symbol
from symalloc.size.parse import parse_condition, parse_expr
from tests.planner.brute_stackings import buffer
from tests.scale import tries

N, M = symbol("n"), symbol("m")
PROVER, DOMAIN = Prover(), Domain()


A, B = buffer(0, 64 * N, (0, 3)), buffer(1, 128 * M, (2, 5))
C = buffer(2, 64 * N, (4, 6))


def guarded(size: Expr, *placed: Placement) -> Plan:
    """A plan of one arena, with the guards that it needs."""
    guards = overflow_guards([size, *(p.offset for p in placed)], DOMAIN, PROVER)
    return Plan(function="f", arenas=(Arena.of(size, placed),), guards=guards)


GOOD = guarded(64 * N + 128 * M, Placement(A, constant(0)), Placement(B, 64 * N), Placement(C, constant(0)))


def test_a_guard_too_weak_does_not_help() -> None:
    small = parse_condition("n <= m")
    weak = Guard(condition=small, check=small)
    assert validate(GOOD, DOMAIN, PROVER) == () != validate(replace(GOOD, guards=(weak,)), DOMAIN, PROVER)


def test_a_guard_on_a_symbol_that_can_be_negative_is_not_stretched() -> None:
    """With m at -2**62 the guard holds, and n*2**10 can be past 64 bits all the same."""
    guard = parse_condition("1024*n + 1024*m <= 2**62")
    judged = replace(guarded(1024 * N), guards=(Guard(condition=guard, check=guard),))
    assert validate(judged, Domain(lower={"m": -(2**62)}), PROVER)
    assert validate(judged, DOMAIN, PROVER) == ()


def test_many_arenas_one_behind_the_other_begin_at_multiples_of_64() -> None:
    """Each is as large as the largest of nine, so that cases of all of them would be thousands."""
    arenas = []
    for number in range(1, 6):
        sizes = [round_up(4 * k * N + 8 * number * M * k, 64) + 64 * k * N for k in range(3, 12)]
        grown = replace(A, id=number, size=maximum(*sizes), nbytes=sizes[0], live=((0, 9),))
        arenas.append(Arena.of(grown.size, [Placement(grown, constant(0))]))
    (given,) = Arena.from_caller(arenas)
    judged = replace(guarded(given.size, *given.placements), arenas=(given,))
    assert validate(judged, DOMAIN, PROVER) == ()


def test_bytes_of_a_symbol_that_nothing_else_names_are_judged() -> None:
    """What is set aside is a constant at the declared bounds; only what is held there names the symbols."""
    held = parse_expr("4*n*(9 - n) + 4*((n*m) // 3)")
    reserved = replace(buffer(0, constant(192), (0, 1)), nbytes=held)
    judged = guarded(constant(192), Placement(reserved, constant(0)))
    assert validate(judged, Domain(upper={"n": 9, "m": 9}), PROVER) == ()
    (fault,) = validate(judged, Domain(upper={"n": 9, "m": 99}), PROVER)
    assert fault.problem == "it holds more bytes than are set aside"


OFFSETS = [
    *(constant(0), constant(64), 64 * N, 64 * M, 128 * M, 64 * N + 64 * M, 64 * N - 64, 8 * N),
    *(maximum(64 * N, 64 * M), maximum(64 * N, 128 * M + 64), 2**40 * N),
    *(maximum(64 * N - 64, constant(0)), maximum(64 * N, 64 * M) + 64 * M),
]
SIZES = [constant(0), constant(64), 64 * N, 64 * M, 64 * M - 64, maximum(64 * N, 64 * M)]
ENDS = [*OFFSETS[:6], 192 * N + 256 * M, maximum(64 * N, 128 * M + 64) + 64 * N, 2**60 * N + 1024 * M + 1024]


@st.composite
def any_plans(draw: st.DrawFn) -> Plan:
    """Plans right and wrong, mostly of tensors that lie on each other."""
    placed, top = [], constant(0)
    for id_ in range(draw(st.integers(1, 4))):
        size, begin = draw(st.sampled_from(SIZES)), draw(st.integers(0, 3))
        one = buffer(id_, size, (begin, begin + draw(st.integers(1, 3))))
        offset = draw(st.sampled_from([top, top, top, *OFFSETS]))
        placed.append(Placement(buffer=one, offset=offset))
        top = draw(st.sampled_from([maximum(top, offset + size), offset + size]))
    made = guarded(draw(st.sampled_from([top, top, top + 64, *ENDS])), *placed)
    return made if draw(st.booleans()) else replace(made, guards=())


def _all_of(plan: Plan) -> Iterator[Obligation]:
    for claims in map(ArenaObligations, plan.arenas):
        yield from (*claims.of_each(), *claims.all_apart())


@settings(max_examples=tries(100, 5000))
@given(any_plans())
def test_what_need_not_be_asked_holds(planned: Plan) -> None:
    judge = ObligationProver.of(planned, DOMAIN, PROVER)
    right = all(judge.proof(one).verdict is Verdict.ALWAYS_VALID for one in _all_of(planned))
    assert (validate(planned, DOMAIN, PROVER) == ()) is right


def test_tensors_below_each_other_carry_none() -> None:
    """Without bytes two may each end where the other starts, behind the arena, too."""
    outside = [Placement(buffer=replace(b, size=constant(0)), offset=64 * N) for b in (A, B)]
    found = validate(guarded(constant(64), *outside), DOMAIN, PROVER)
    assert {fault.buffers for fault in found} >= {("t0",), ("t1",)}
