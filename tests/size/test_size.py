"""Size expressions and conditions: arithmetic, reading, writing, sympy, obligations."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.linter.diagnostic import Severity
from symalloc.program.ir import Origin, Program
from symalloc.prover.domain import Box
from symalloc.prover.prover import Prover
from symalloc.size.choice import evaluated_divisors, fails, holds, maximum, minimum
from symalloc.size.condition import Condition, negate
from symalloc.size.expr import Expr, floordiv, mod
from symalloc.size.expr import symbol as sym
from symalloc.size.parse import SizeSyntaxError, parse_condition, parse_expr, symbols_in
from tests.linter.engine_run import findings
from tests.program.build import Body, param, size, tensor_of
from tests.prover.brute import conditions, points, sizes
from tests.prover.random_questions import NAMES, meaning, plain, readable_question
from tests.scale import tries

SMALL = Box({"a": -3, "b": -3}, {"a": 4, "b": 4})


def unproved(_divisor: Expr) -> bool:
    return False


def _python(text: str, point: dict[str, int]) -> object:
    return eval(text, {"__builtins__": {}}, {"min": min, "max": max, **point})


@given(sizes())
@settings(max_examples=tries(100, 600))
def test_what_is_written_reads_back_and_means_the_same_to_python(expr: Expr) -> None:
    assert parse_expr(str(expr)) == expr
    assert all(_python(str(expr), p) == expr.evaluate(p) for p in points(SMALL))


@given(conditions())
@settings(max_examples=tries(100, 600))
def test_conditions_read_back_and_mean_the_same_to_python(condition: Condition) -> None:
    assert parse_condition(str(condition)) == condition
    assert all(bool(_python(str(condition), p)) is condition.evaluate(p) for p in points(SMALL))


@given(conditions())
@settings(max_examples=tries(30, 600))
def test_negation_is_the_opposite(condition: Condition) -> None:
    opposite = negate(condition)
    assert all(opposite.evaluate(p) is not condition.evaluate(p) for p in points(SMALL))


@given(sizes(), sizes(), st.integers(-3, 4), st.integers(-3, 4))
@settings(max_examples=tries(40, 800))
def test_arithmetic_is_that_of_integers(left: Expr, right: Expr, a: int, b: int) -> None:
    point = {"a": a, "b": b}
    x, y = left.evaluate(point), right.evaluate(point)
    assert (left + right).evaluate(point) == x + y
    assert (left - right).evaluate(point) == x - y
    assert (left * right).evaluate(point) == x * y
    assert (left**2).evaluate(point) == x * x
    assert floordiv(left, 6).evaluate(point) == x // 6
    assert mod(left, 6).evaluate(point) == x % 6
    assert floordiv(left, -4).evaluate(point) == x // -4
    assert minimum(left, right, 3).evaluate(point) == min(x, y, 3)
    assert maximum(left, right, 3).evaluate(point) == max(x, y, 3)


@given(st.tuples(*[st.integers(-24, 24)] * 3), st.integers(1, 48), st.integers(1, 6), st.integers(-9, 9))
@settings(max_examples=tries(100, 2000))
def test_common_factors_leave_divisions_exactly(
    factors: tuple[int, int, int], divisor: int, common: int, at: int
) -> None:
    n, m, offset = (common * f for f in factors)
    expr, value = n * sym("n") + m * sym("m") + offset, n * at - m * (at + 5) + offset
    point = {"n": at, "m": -at - 5}
    assert floordiv(expr, common * divisor).evaluate(point) == value // (common * divisor)
    assert mod(expr, common * divisor).evaluate(point) == value % (common * divisor)


@given(sizes(), sizes(), st.integers(-3, 4), st.integers(-3, 4))
@settings(max_examples=tries(30, 600))
def test_substitution_then_evaluation(expr: Expr, value: Expr, a: int, b: int) -> None:
    inner = {"a": a, "b": b}
    outer = {"a": value.evaluate(inner), "b": b}
    assert expr.substitute({"a": value}).evaluate(inner) == expr.evaluate(outer)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("m*4", "4*m"),
        ("(4*n + 8) // 4", "n + 2"),
        ("(4*n + 7) // 4", "n + 1"),
        ("(n // 4) * 4", "4*(n // 4)"),
        ("4*m // 7", "4*m // 7"),
        ("n // (m*3)", "n // (3*m)"),
        ("min(n, min(m, n))", "min(m, n)"),
        ("max(3, 4, n)", "max(n, 4)"),
        ("(4*n + 6) % 4", "2"),
        ("4*m % 256", "4*(m % 64)"),
        ("(4*m + 520) % 256", "4*((m + 2) % 64)"),
        ("4*m // 256", "m // 64"),
        ("4*n*m + 64", "4*m*n + 64"),
        ("64*n - 256", "64*n - 256"),
        ("max(64*n, 4096)", "max(4096, 64*n)"),
        (
            "64 if n <= 3 else 128 if n <= 9 else 64*n",
            "(64 if n <= 3 else (128 if n <= 9 else (64*n)))",
        ),
        ("(256*n + 4*m + 8) // 256", "((m + 2) // 64) + n"),
        ("(300*b*n + 4*m + 63) // 64", "4*b*n + ((44*b*n + 4*m + 63) // 64)"),
        ("(3 - 100*n) // 64", "((3 - 36*n) // 64) - n"),
        ("ceildiv(n, 16)", "(n + 15) // 16"),
        ("round_up(4*n, 64)", "64*((4*n + 63) // 64)"),
        ("n - n", "0"),
        ("Max(n, 2)", "max(n, 2)"),
        ("3 - n", "3 - n"),
        ("n**2*m", "m*n**2"),
        ("(n if n < m else 2)", "(n if n < m else 2)"),
    ],
)
def test_expressions_as_written(text: str, written: str) -> None:
    assert str(parse_expr(text)) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("4*m <= 18", "m <= 4"),
        ("16 >= 4*m", "m <= 4"),
        ("n % 4 <= 2", "n % 4 <= 2"),
        ("n // 8 >= 1", "n // 8 >= 1"),
        ("m + n < 2*k", "m + n < 2*k"),
        ("n > 3", "n >= 4"),
        ("2*n == 7", "False"),
        ("2*n != 7", "True"),
        ("not n <= 4", "n >= 5"),
        ("not (n <= 4 and m == 2)", "n >= 5 or m != 2"),
        ("1 <= n <= 4", "n >= 1 and n <= 4"),
        ("n <= 4 and (m <= 2 or k <= 3)", "n <= 4 and (m <= 2 or k <= 3)"),
        ("True and n <= 4", "n <= 4"),
        ("n - m == 0", "m == n"),
        ("m - n == 0", "m == n"),
    ],
)
def test_conditions_as_written(text: str, written: str) -> None:
    assert str(parse_condition(text)) == written


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("4*m <=", 6, "syntax error"),
        ("4*m", 0, "a size where a condition is expected"),
        ("4*m/2 <= 3", 4, "use `//`"),
        ("n^2 <= 3", 2, "use `**` for a power"),
        ("n // 0 <= 3", 0, "division by zero"),
        ("n % (2 - 4) <= 3", 0, "division by a negative number"),
        ("f(n) <= 3", 0, "`f` with 1 arguments"),
        ("n**m <= 3", 0, "exponent"),
        ("n**-1 <= 3", 0, "exponent"),
        ("n.shape <= 3", 0, "not a size expression"),
        ("(n <= 3) <= 4", 1, "a condition where a size is expected"),
        ("n in m", 0, "compare sizes"),
        ("True <= 3", 0, "a truth value"),
        ("  n <= 'x'", 7, "not a size expression"),
        ("round_up(n, 0) <= 3", 0, "positive constant"),
        ("__import__('os') <= 3", 11, "not a size expression"),
    ],
)
def test_what_cannot_be_read(text: str, column: int, problem: str) -> None:
    with pytest.raises(SizeSyntaxError, match=problem.replace("*", r"\*")) as caught:
        parse_condition(text)
    assert caught.value.column == column


@pytest.mark.parametrize("text", ["(" * 300 + "n" + ")" * 300 + " <= 1", "n <= 1" + " " * 30_000, "n\0 <= 1"])
def test_monsters_are_refused(text: str) -> None:
    with pytest.raises(SizeSyntaxError):
        parse_condition(text)


def test_cancelled_divisions_leave_their_obligation() -> None:
    assert str(parse_condition("n // k == n // k")) == "k >= 1"
    assert str(parse_condition("not n // k == n // k")) == "False"
    assert str(parse_condition("(n // k if True else n // m) - n // k == 0")) == "k >= 1"
    assert str(parse_condition("n // k <= 3")) == "n // k <= 3"
    assert symbols_in("0*n + max(m, k) <= 1") == {"n", "m", "k"}


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


@pytest.mark.parametrize(
    ("divisor", "origin", "severity"),
    [
        ("k - 4", Origin.DIMENSION, Severity.WARNING),  # at a shape without empty dimensions
        ("k", Origin.SCALAR, Severity.WARNING),  # which is not empty
        ("min(k, 0)", Origin.DIMENSION, Severity.ERROR),
    ],
)
def test_how_grave_a_divisor_is(divisor: str, origin: Origin, severity: Severity) -> None:
    (found,) = findings(divided(divisor, symbols={"n": Origin.DIMENSION, "k": origin}), "SYM109")
    assert found.severity is severity


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


@pytest.mark.parametrize(
    ("text", "fails_at"),
    [
        ("(a // n if a <= 3 else a // n) <= a", {"a": 0, "n": 0}),
        ("(4 if a // n <= 3 else 4) <= 4", {"a": 0, "n": 0}),
        ("(4 if a // n == a // n else 5) <= 5", {"a": 0, "n": 0}),
        ("(0*(a // n) if a >= 7 else 1) <= 1", {"a": 7, "n": 0}),
        ("(4 if a // n == 0 or 1 <= 2 else 5) <= 4", {"a": 0, "n": 0}),
        ("(4 if n <= 0 or a // n == 0 else 4) <= 4", None),
        ("(4 if n >= 1 and a // n == 0 else 5) <= 5", None),
        ("(4 if a // n == 0 and n >= 1 else 5) <= 5", {"a": 0, "n": 0}),
        ("min(a // n, a // n) - a // n == 0", {"a": 0, "n": 0}),
        ("(a // n if 1 <= 0 else 3) == 3", None),
        ("not a // n == a // n + 1", {"n": 0}),
    ],
)
def test_obligations_of_what_is_dropped(text: str, fails_at: dict[str, int] | None) -> None:
    proof = Prover().prove(parse_condition(text))
    point = proof.counterexample
    assert (point is None) is (fails_at is None)
    assert point is None or (point.get("a", 0), point["n"]) == (fails_at.get("a", 0), fails_at["n"])  # type: ignore[union-attr]


def test_reads_as_python_evaluates() -> None:
    """A relation is false where it divides by less than 1, and its negation is true."""
    rng = random.Random(3)
    points_of_all = [dict(zip(NAMES, values, strict=True)) for values in product((-2, 0, 1, 5), repeat=3)]
    for _ in range(tries(120, 4000)):
        question = readable_question(rng)
        for text in (question.constraint, *question.assumptions):
            condition, truth = parse_condition(plain(text)), meaning(text)
            yes, no = holds(condition, unproved), fails(condition, unproved)
            for point in points_of_all:
                assert yes.evaluate(point) is truth(point) is not no.evaluate(point), (text, point)
