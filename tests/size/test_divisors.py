"""Divisors that can be 0: named once, and not by every other rule."""

from __future__ import annotations

import pytest

from symalloc.linter.diagnostic import Severity
from symalloc.program.ir import Origin, Program
from symalloc.size.defined import evaluated_divisors
from tests.linter.engine_run import findings
from tests.program.build import Body, param, size, tensor_of


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        ("4*n", []),
        ("n // 4 + n % 16", []),
        ("n // k", ["k"]),
        ("2*m*(n % (k - 4))", ["k - 4"]),
        ("n // (m // k)", ["k", "m // k"]),
        ("n // k // m", ["k", "m"]),
        ("max(n // k, 1) + min(m, n % h)", ["h", "k"]),
        ("n // k if k > 0 else 8", []),
        ("n // k if m > 3 else 8", ["(k if m >= 4 else 1)"]),
        ("n // k if m > 3 else m % k", ["k"]),
        ("8 if n // k > 3 else m", ["k"]),
        ("8 if m > 3 and n // k > 3 else m", []),
        ("n // k - n // k", []),
    ],
)
def test_what_is_divided_by(quantity: str, expected: list[str]) -> None:
    assert sorted(map(str, evaluated_divisors([size("n"), size(quantity)]))) == expected


def divided(divisor: str, *, symbols: dict[str, Origin] | None = None) -> Program:
    """A tensor of n // divisor bytes on a storage that is large enough, and one that is not."""
    body = Body(param("x", "n", "k"))
    first = body.tensor(body.storage("n"), f"n // ({divisor})")
    second = body.tensor(body.storage(8), f"n // ({divisor})", name="second")
    body.call("fill", first)
    body.call("fill", second)
    return body.program(symbols=symbols or dict.fromkeys("nk", Origin.DIMENSION))


def test_a_divisor_is_named_once_and_others_take_it_to_be_at_least_one() -> None:
    found = findings(divided("k"), "SYM1")
    assert [(d.rule, d.severity) for d in found] == [
        ("SYM109", Severity.NOTE),
        ("SYM101", Severity.ERROR),
    ]
    assert found[0].counterexample == {"k": 0}
    assert found[1].counterexample is not None and found[1].counterexample["k"] >= 1


def test_a_divisor_that_is_zero_for_a_shape_without_empty_dimensions_is_a_warning() -> None:
    (found,) = findings(divided("k - 4"), "SYM109")
    assert (found.severity, found.precondition) == (Severity.WARNING, "k >= 5")


def test_a_scalar_is_not_empty() -> None:
    (found,) = findings(divided("k", symbols={"n": Origin.DIMENSION, "k": Origin.SCALAR}), "SYM109")
    assert found.severity is Severity.WARNING


def test_a_divisor_that_is_never_positive_is_an_error() -> None:
    (found,) = findings(divided("min(k, 0)"), "SYM109")
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize("check", ["k >= 1", "k > 7", "2*k == n + 3"])
def test_a_check_in_front_rules_it_out(check: str) -> None:
    body = Body(param("x", "n", "k"))
    body.check(check)
    body.tensor(body.storage("n"), "n // k")
    assert not findings(body.program(symbols=dict.fromkeys("nk", Origin.DIMENSION)), "SYM109")


def test_a_check_behind_does_not() -> None:
    body = Body(param("x", "n", "k"))
    body.tensor(body.storage("n"), "n // k")
    body.check("k >= 1")
    body.tensor(body.storage("n"), "n // k")
    assert len(findings(body.program(symbols=dict.fromkeys("nk", Origin.DIMENSION)), "SYM109")) == 1


def test_a_size_that_is_chosen_at_zero_is_judged_at_zero() -> None:
    """The tensor has 9 bytes where k is 0, and no division takes place there."""
    body = Body(param("x", "n", "k"))
    body.check("n <= 8")
    body.tensor(body.storage(8), "n // k if k > 0 else 9")
    (found,) = findings(body.program(symbols=dict.fromkeys("nk", Origin.DIMENSION)), "SYM101")
    assert found.counterexample is not None and found.counterexample["k"] == 0


def test_a_call_is_no_worse_than_what_its_callee_needs() -> None:
    callee = Body(param("p", "n", "k"), name="callee")
    callee.tensor(callee.storage("n"), "n // k")
    inner = callee.finish(symbols=dict.fromkeys("nk", Origin.DIMENSION))
    body = Body(param("x", "n", "m"))
    body.function("callee", body.params[0], kind=tensor_of("n"))
    found = findings(body.program(body.params[0], inner), "SYM109", "SYM304")
    assert {(d.rule, d.severity) for d in found} == {("SYM109", Severity.NOTE), ("SYM304", Severity.NOTE)}
