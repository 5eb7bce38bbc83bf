"""Sizes as they are printed, which Python reads as the same values, and as scripts of TVM write them."""

from __future__ import annotations

import random

import pytest
import sympy
from hypothesis import given, settings

from benchmarks.sympy_round_trip import drawn, objection
from symalloc.size.condition import TRUE, Condition
from symalloc.size.expr import Expr, constant, floordiv, symbol
from symalloc.size.notation import TVMSCRIPT
from symalloc.size.parse import as_condition, as_expr, parse_condition, parse_expr
from symalloc.size.sympy_terms import symbols
from tests.prover.brute import conditions, sizes
from tests.scale import tries


@pytest.mark.parametrize(
    ("size", "script"),
    [
        ("4*m", "m * 4"),
        ("16", "16"),
        ("0", "0"),
        ("m*n*4 + 64", "m * n * 4 + 64"),
        ("m - 1", "m - 1"),
        ("1 - m", "1 - m"),
        ("-m", "0 - m"),
        ("m**2", "m * m"),
        ("(m + 15) // 16 * 64", "((m + 15) // 16) * 64"),
        ("n % 8", "(n % 8)"),
        ("min(m, n, 8)", "T.min(m, T.min(n, 8))"),
        ("max(4*m, 16)", "T.max(16, m * 4)"),
        ("m if m <= 4 else 4", "T.if_then_else(m <= 4, m, 4)"),
    ],
)
def test_sizes_in_scripts(size: str, script: str) -> None:
    assert parse_expr(size).text(TVMSCRIPT) == script


@pytest.mark.parametrize(
    ("condition", "script"),
    [
        ("m <= 4", "m <= 4"),
        ("m >= 3", "m >= 3"),
        ("m < n", "m <= n - 1"),
        ("m == n", "m == n"),
        ("n % 16 == 0", "(n % 16) == 0"),
        ("m != 4", "m != 4"),
        ("m <= 4 and n <= 2", "T.And(m <= 4, n <= 2)"),
        ("m <= 4 or n <= 2 or k <= 1", "T.Or(m <= 4, T.Or(n <= 2, k <= 1))"),
        ("m + n <= 2*k + 8", "m + n <= k * 2 + 8"),
    ],
)
def test_conditions_in_scripts(condition: str, script: str) -> None:
    assert parse_condition(condition).text(TVMSCRIPT) == script


@pytest.mark.parametrize("text", ["4*m <= 16", "m - n >= 3", "a*b + 2 == c", "1 <= m", "3 - m <= 0"])
def test_what_scripts_write_means_the_same(text: str) -> None:
    condition = parse_condition(text)
    assert parse_condition(condition.text(TVMSCRIPT)) == condition


n, m = symbols("n m")
SHAPES = [{"n": a, "m": b} for a in range(40) for b in (1, 5)]


@given(sizes())
@settings(max_examples=tries(30, 3000))
def test_there_and_back(expr: Expr) -> None:
    assert objection(expr) is None


@given(conditions())
@settings(max_examples=tries(30, 3000))
def test_conditions_there_and_back(condition: Condition) -> None:
    assert objection(condition) is None


def test_divisors_with_symbols_there_and_back() -> None:
    rng = random.Random(2)
    assert not list(filter(None, (objection(drawn(rng)) for _ in range(tries(50, 10_000)))))


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (4 * n * m + 3, "4*n*m + 3"),
        (sympy.ceiling(n / 16), "-(-n // 16)"),
        (sympy.floor((n + 15) / 16) * 16, "(n + 15) // 16 * 16"),
        (sympy.Piecewise((n, n < m), (m, True)), "n if n < m else m"),
        (sympy.Mod(n, m) + sympy.Max(n, m, 7) - sympy.Min(n, m), "n % m + max(n, m, 7) - min(n, m)"),
        (n**2 * (m + 1), "n*n*m + n*n"),
        (7, "7"),
        (sympy.Integer(7), "7"),
    ],
)
def test_sizes_are_read(written: object, text: str) -> None:
    read, expected = as_expr(written), parse_expr(text)
    assert all(read.evaluate(at) == expected.evaluate(at) for at in SHAPES)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (sympy.And(n <= 4, sympy.Ne(m, 2)), "n <= 4 and m != 2"),
        (sympy.Not(n <= 4), "n >= 5"),
        (n / 2 < m / 3 + 1, "3*n < 2*m + 6"),
        (sympy.Implies(n < 3, sympy.Eq(m, 1)), "n >= 3 or m == 1"),
        (sympy.Xor(n < 3, m < 3), "(n >= 3 or m >= 3) and (n < 3 or m < 3)"),
    ],
)
def test_conditions_are_read(written: object, text: str) -> None:
    read, expected = as_condition(written), parse_condition(text)
    assert all(read.evaluate(at) is expected.evaluate(at) for at in SHAPES)


def test_constants_are_read() -> None:
    assert as_condition(sympy.true) is TRUE
    assert as_expr(constant(4)) == as_expr("4") == as_expr(4)


def test_signs_are_not_taken_for_granted() -> None:
    """A scalar may be negative, although sympy's symbol is not: `n >= 0` stays what it is."""
    assert as_condition(sympy.sympify(parse_condition("n >= 0"))) == parse_condition("n >= 0")
    assert as_expr(sympy.sympify(parse_expr("max(n, 0)"))) == parse_expr("max(n, 0)")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (sympy.Rational(1, 2), "1/2 (a size is a whole number: floor(n/2) rounds down)"),
        (n / 2, "n/2 (a size is a whole number"),
        (sympy.Float(0.5), "(a size is a whole number"),
        (sympy.sin(n), "sin(n)"),
        (2**n, "2**n (the exponent must be a natural number up to 16)"),
        (n**17, "n**17 (the exponent"),
        (sympy.sqrt(n), "sqrt(n) (the exponent"),
        (sympy.Piecewise((n, n < 4)), "(the last case must be for all else)"),
    ],
)
def test_what_is_no_size(value: object, reason: str) -> None:
    with pytest.raises(ValueError, match="not a size expression") as error:
        as_expr(value)
    assert reason in str(error.value)


@pytest.mark.parametrize("value", [n, sympy.Symbol("b"), 4, None, True, [n < 3]])
def test_what_is_no_condition(value: object) -> None:
    with pytest.raises(ValueError, match="not a condition"):
        as_condition(value)


@pytest.mark.parametrize("value", [None, True, 0.5, [4]])
def test_what_is_no_size_at_all(value: object) -> None:
    with pytest.raises(ValueError, match="not a size but of type"):
        as_expr(value)


def test_sympy_computes_with_them() -> None:
    size = 64 * floordiv(4 * symbol("n") + 63, 64) + symbol("m") ** 2
    written = sympy.sympify(size)
    assert written.subs({n: 17, m: 2}) == size.evaluate({"n": 17, "m": 2}) == 132
    assert sympy.lambdify((n, m), written)(17, 2) == 132
    assert sympy.diff(size, m) == 2 * m
    assert (
        sympy.latex(size)
        == sympy.latex(written)
        == r"m^{2} + 64 \left\lfloor{\frac{n}{16} + \frac{63}{64}}\right\rfloor"
    )
    assert written + n == n + size == size + n
    assert size - n == written - n and n * size == size * n
