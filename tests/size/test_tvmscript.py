from __future__ import annotations

import pytest

from symalloc.size.notation import TVMSCRIPT
from symalloc.size.parse import parse_condition, parse_expr


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
def test_sizes(size: str, script: str) -> None:
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
def test_conditions(condition: str, script: str) -> None:
    assert parse_condition(condition).text(TVMSCRIPT) == script


@pytest.mark.parametrize("text", ["4*m <= 16", "m - n >= 3", "a*b + 2 == c", "1 <= m", "3 - m <= 0"])
def test_what_is_written_means_the_same(text: str) -> None:
    condition = parse_condition(text)
    assert parse_condition(condition.text(TVMSCRIPT)) == condition
