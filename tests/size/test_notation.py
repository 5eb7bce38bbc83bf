"""Sizes as they are printed, which Python reads as the same values, and as scripts of TVM write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.size.choice import maximum, select
from symalloc.size.condition import Condition, le
from symalloc.size.expr import Expr, round_up, symbol
from symalloc.size.notation import TVMSCRIPT
from symalloc.size.parse import parse_condition, parse_expr
from tests.prover.brute import conditions, sizes

N, M = symbol("n"), symbol("m")


def evaluated(text: str, binding: dict[str, int]) -> Any:
    return eval(text, {"__builtins__": {}}, {"max": max, "min": min, **binding})


@settings(max_examples=200)
@given(sizes(), st.integers(-9, 40), st.integers(-9, 40))
def test_python_reads_the_same_value(expr: Expr, a: int, b: int) -> None:
    binding = {"a": a, "b": b}
    assert evaluated(str(expr), binding) == expr.evaluate(binding)


@settings(max_examples=60)
@given(conditions(), st.integers(-9, 12), st.integers(-9, 12))
def test_python_reads_the_same_truth(condition: Condition, a: int, b: int) -> None:
    binding = {"a": a, "b": b}
    assert evaluated(str(condition), binding) is condition.evaluate(binding)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (4 * N * M + 64, "4*m*n + 64"),
        (64 * N - 256, "64*n - 256"),
        (round_up(4 * N, 64), "64*((4*n + 63) // 64)"),
        (maximum(64 * N, 4096), "max(4096, 64*n)"),
        (
            select(le(N, 3), 64, select(le(N, 9), 128, 64 * N)),
            "(64 if n <= 3 else (128 if n <= 9 else (64*n)))",
        ),
    ],
)
def test_the_text_is_what_a_person_would_write(expr: Expr, text: str) -> None:
    assert str(expr) == text


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
