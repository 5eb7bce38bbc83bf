"""The text that `symalloc pack` writes reads back, by Python itself, as the same values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.size.choice import maximum, minimum, select
from symalloc.size.condition import FALSE, TRUE, Condition, conjunction, disjunction, eq, le, ne
from symalloc.size.expr import Expr, constant, floordiv, mod, round_up, symbol
from symalloc.size.notation import PIECEWISE

N, M = symbol("n"), symbol("m")


def piecewise(*cases: tuple[int, bool]) -> int:
    return next(value for value, holds in cases if holds)


def evaluated(text: str, binding: dict[str, int]) -> Any:
    names = {"Max": max, "Min": min, "Piecewise": piecewise, **binding}
    return eval(text, {"__builtins__": {}}, names)


CONDITIONS = st.sampled_from(
    (le(N, 3), eq(N % 4, 1), ne(N, M), conjunction((le(N, 9), le(4, M))), disjunction((le(N, 1), le(M, 1))))
)
EXPRESSIONS: st.SearchStrategy[Expr] = st.recursive(
    st.sampled_from((N, M, constant(0), constant(7), 64 * N, N * N - 3)),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - 2 * b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda a: floordiv(a, 6), inner),
        st.builds(lambda a: mod(a, 5), inner),
        st.builds(lambda a: round_up(a, 64), inner),
        st.builds(lambda a: floordiv(100, a * a + 1), inner),
        st.builds(maximum, inner, inner),
        st.builds(minimum, inner, inner),
        st.builds(select, CONDITIONS, inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=200)
@given(EXPRESSIONS, st.integers(0, 40), st.integers(0, 40))
def test_python_reads_the_same_value(expr: Expr, n: int, m: int) -> None:
    binding = {"n": n, "m": m}
    assert evaluated(expr.text(PIECEWISE), binding) == expr.evaluate(binding)


@settings(max_examples=60)
@given(CONDITIONS, st.integers(0, 12), st.integers(0, 12))
def test_python_reads_the_same_truth(condition: Condition, n: int, m: int) -> None:
    binding = {"n": n, "m": m}
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
