from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.memory_plan import Arena
from symalloc.planner.overflow_guards import guards, machine_check, overflow_guards
from symalloc.program.ir import Var
from symalloc.program.types import OpaqueType
from symalloc.prover.domain import INT64_MAX, INT64_MIN, Domain
from symalloc.prover.prover import Prover
from symalloc.size.choice import Max, Min, Select, maximum, minimum, select
from symalloc.size.condition import FALSE, And, Condition, Or, Relation, gt, le
from symalloc.size.expr import Atom, Expr, FloorDiv, constant, floordiv, mod, round_up, symbol
from tests.scale import tries

B, N, M = symbol("b"), symbol("n"), symbol("m")
PROVER, DOMAIN = Prover(), Domain()
SIZES = (
    round_up(4 * N, 64),
    256 * N * B + 64,
    maximum(round_up(4 * (N - 3) * (M - 7), 64), 0),
    minimum(64 * N, 128 * M),
    64 * N * N * B + 128 * M,
    mod(N, 48) * 64 + floordiv(N, M + 1) * 64,
    select(gt(N, M), 64 * N, 64 * M * B),
    minimum(N, 2**63 - 2) + 63,
    maximum(minimum(N, 2**62, -5 * M), -(2**62)) * 2,
)


def inside(value: int) -> int:
    """`value`, which must be one that 64 bits hold."""
    assert -(2**63) <= value < 2**63, "the check itself wraps"
    return value


def machine_value(expr: Expr, binding: dict[str, int]) -> int:
    """`expr` as the machine evaluates it, every step inside 64 bits."""
    total = 0
    for monomial, coefficient in expr.terms.items():
        term = inside(coefficient)
        for atom, power in monomial:
            for _ in range(power):
                term = inside(term * atom_value(atom, binding))
        total = inside(total + term)
    return total


def atom_value(atom: Atom, binding: dict[str, int]) -> int:
    match atom:
        case FloorDiv(numerator=numerator, denominator=denominator):
            return machine_value(numerator, binding) // machine_value(denominator, binding)
        case Max(operands=operands):
            return max(machine_value(o, binding) for o in operands)
        case Min(operands=operands):
            return min(machine_value(o, binding) for o in operands)
        case Select(condition=test, then=then, otherwise=otherwise):
            return machine_value(then if machine_truth(test, binding) else otherwise, binding)
    return binding[atom.key]


def machine_truth(condition: Condition, binding: dict[str, int]) -> bool:
    """The truth of a check, all of whose parts are evaluated, as generated code does; sides as they are
    emitted.
    """
    if isinstance(condition, Relation):
        left = Expr({m: c for m, c in condition.expr.terms.items() if c > 0})
        right = Expr({m: -c for m, c in condition.expr.terms.items() if c < 0})
        return machine_value(left, binding) <= machine_value(right, binding)
    assert isinstance(condition, And | Or)
    truths = [machine_truth(c, binding) for c in condition.operands]
    return all(truths) if isinstance(condition, And) else any(truths)


extents = st.one_of(
    st.integers(0, 300), st.integers(0, INT64_MAX), st.integers(1, 125).map(lambda e: 2 ** (e // 2) - e % 2)
)


SIGNED = Domain(lower={"m": INT64_MIN, "n": INT64_MIN})
scalars = st.one_of(extents, extents.map(lambda e: -e), st.sampled_from((INT64_MIN, INT64_MAX, -1)))


@pytest.mark.parametrize("domain", [SIGNED, DOMAIN])
@settings(max_examples=tries(250, 5000))
@given(st.sampled_from([s for s in SIZES if s != SIZES[5]]), extents, scalars, scalars)
def test_guards_keep_sizes_within_64_bits(domain: Domain, size: Expr, b: int, n: int, m: int) -> None:
    """The checks never wrap, imply what they stand for, and leave no partial sum outside 64 bits."""
    binding = {"b": b, "n": n, "m": m} if domain is SIGNED else {"b": b, "n": max(n, 0), "m": max(m, 0)}
    found = overflow_guards([size], domain, PROVER)
    truths = [machine_truth(guard.check, binding) for guard in found]  # all, as generated code does
    if not all(truths):
        return
    assert all(guard.condition.evaluate(binding) for guard in found)
    assert abs(size.evaluate(binding)) <= INT64_MAX
    machine_value(Expr({m: c for m, c in size.terms.items() if c > 0}), binding)


@pytest.mark.parametrize(("domain", "sign"), [(SIGNED, 1), (SIGNED, -1), (DOMAIN, 1)])
def test_ordinary_sizes_pass(domain: Domain, sign: int) -> None:
    for size in SIZES:
        for value in (0, 1, 7, 2**14):
            binding = {"b": 2**14, "n": sign * value, "m": value}
            found = overflow_guards([size], domain, PROVER)
            assert all(machine_truth(guard.check, binding) for guard in found)


def test_a_scalar_has_a_limit_on_each_side() -> None:
    upper, lower = overflow_guards([64 * N], SIGNED, PROVER)
    limit = INT64_MAX // 64
    assert [str(upper.condition), str(lower.condition)] == [f"n <= {limit}", f"n + {limit} >= 0"]
    assert lower.check.evaluate({"n": -limit}) and not lower.check.evaluate({"n": -limit - 1})


@settings(max_examples=tries(100, 3000))
@given(st.lists(scalars, min_size=5, max_size=5), st.sets(st.sampled_from("abcde")))
def test_long_products_are_checked_step_by_step(values: list[int], signed: set[str]) -> None:
    """The check of five factors neither wraps nor passes what overflows, and lets small values pass."""
    binding = {name: v if name in signed or v >= 0 else 0 for name, v in zip("abcde", values, strict=True)}
    bound = 3 * prod(map(symbol, "abcde"), start=constant(1))
    if machine_truth(machine_check(bound, signed), binding):
        assert 3 * prod(map(abs, binding.values())) <= INT64_MAX
    assert machine_truth(machine_check(bound, signed), {name: v % 4096 for name, v in binding.items()})


@pytest.mark.parametrize("signed", [False, True])
def test_the_check_of_a_product_grows_by_the_same_with_each_factor(signed: bool) -> None:
    def parts(factors: int) -> int:
        names = [f"n{i}" for i in range(factors)]
        check = machine_check(prod(map(symbol, names), start=constant(4)), set(names) if signed else set())
        assert isinstance(check, And)
        found = dict.fromkeys(c.expr for c in check.operands if isinstance(c, Relation))
        pending = list(found)
        for expr in pending:
            fresh = [e for atom in expr.atoms for e in atom.operands if e not in found]
            found.update(dict.fromkeys(fresh))
            pending += fresh
        return len(found)

    assert parts(31) - parts(30) == parts(11) - parts(10) <= 8


@pytest.mark.parametrize("slope", [1, 64, 1280])
def test_in_one_symbol_the_check_is_exact(slope: int) -> None:
    (guard,) = overflow_guards([slope * 64 * N], DOMAIN, PROVER)
    limit = INT64_MAX // (slope * 64)
    assert guard.condition == guard.check
    assert guard.check.evaluate({"n": limit}) and not guard.check.evaluate({"n": limit + 1})


def test_one_guard_speaks_for_what_it_dominates() -> None:
    sizes = [64 * N, 128 * N, 1024 * N, 512 * N + 64]
    (guard,) = overflow_guards(sizes, DOMAIN, PROVER)
    assert str(guard.condition) == f"n <= {INT64_MAX // 1024}"
    joint, single = overflow_guards([64 * N * B, 128 * N * B + 64 * M, 64 * B], DOMAIN, PROVER)[::-1]
    assert str(single.condition) == f"b <= {INT64_MAX // 64}", "n may be zero"
    assert joint.condition.symbols == {"b", "m", "n"}


def test_guards_that_follow_from_others_are_left_out() -> None:
    assert len(overflow_guards([64 * N * B + 64 * B, 64 * B], DOMAIN, PROVER)) == 1
    domain = Domain(assumptions=(le(N * B, 1000), le(B, 1000)))
    assert overflow_guards([64 * N * B, 64 * B], domain, PROVER) == ()


def test_a_late_arena_is_checked_where_it_is_reserved_and_only_for_what_is_new() -> None:
    cast = Var(name="cast", type=OpaqueType())
    early, late = Arena.of(64 * N, ()), replace(Arena.of(64 * N + 64 * M, ()), defined_by=cast)
    first, second = guards([late, early], DOMAIN, PROVER)
    assert (first.defined_by, second.defined_by) == (None, cast)
    assert first.condition.symbols == {"n"} and second.condition.symbols == {"m", "n"}
    assert guards([early, replace(early, defined_by=cast)], DOMAIN, PROVER) == (first,)


def test_what_cannot_overflow_needs_no_guard_and_what_never_fits_is_always_refused() -> None:
    assert overflow_guards([constant(4096)], DOMAIN, PROVER) == ()
    assert overflow_guards([1024 * N], Domain(upper={"n": 4096}), PROVER) == ()
    (guard,) = overflow_guards([constant(2**63)], DOMAIN, PROVER)
    assert guard.check == FALSE
