"""The text that `symalloc pack` writes reads back, by Python itself, as the same values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.size.choice import maximum, select
from symalloc.size.condition import FALSE, TRUE, Condition, le
from symalloc.size.expr import Expr, round_up, symbol
from symalloc.size.notation import PIECEWISE
from tests.prover.brute import conditions, sizes

N, M = symbol("n"), symbol("m")


def piecewise(*cases: tuple[int, bool]) -> int:
    return next(value for value, holds in cases if holds)


def evaluated(text: str, binding: dict[str, int]) -> Any:
    names = {"Max": max, "Min": min, "Piecewise": piecewise, **binding}
    return eval(text, {"__builtins__": {}}, names)


@settings(max_examples=200)
@given(sizes(), st.integers(-9, 40), st.integers(-9, 40))
def test_python_reads_the_same_value(expr: Expr, a: int, b: int) -> None:
    binding = {"a": a, "b": b}
    assert evaluated(expr.text(PIECEWISE), binding) == expr.evaluate(binding)


@settings(max_examples=60)
@given(conditions(), st.integers(-9, 12), st.integers(-9, 12))
def test_python_reads_the_same_truth(condition: Condition, a: int, b: int) -> None:
    binding = {"a": a, "b": b}
    assert evaluated(condition.text(PIECEWISE), binding) is condition.evaluate(binding)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (4 * N * M + 64, "4*m*n + 64"),
        (64 * N - 256, "64*n - 256"),
        (round_up(4 * N, 64), "64*((4*n + 63) // 64)"),
        (maximum(64 * N, 4096), "Max(4096, 64*n)"),
        (
            select(le(N, 3), 64, select(le(N, 9), 128, 64 * N)),
            "Piecewise((64, n <= 3), (128, n <= 9), (64*n, True))",
        ),
    ],
)
def test_the_text_is_what_a_person_would_write(expr: Expr, text: str) -> None:
    assert expr.text(PIECEWISE) == text


def test_constant_conditions() -> None:
    assert (TRUE.text(PIECEWISE), FALSE.text(PIECEWISE)) == ("True", "False")
