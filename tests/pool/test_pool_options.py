from __future__ import annotations

from fractions import Fraction

import pytest

from symalloc.pool.core.pool_errors import PoolUsageError
from symalloc.pool.core.pool_options import parse_bytes, parse_soft_limit


@pytest.mark.parametrize(
    ("text", "nbytes"),
    (("0", 0), ("4096", 4096), ("64KiB", 65536), ("1.5 GiB", 3 * 2**29), (" 2mib ", 2**21), ("7B", 7)),
)
def test_amounts(text: str, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ("", "many", "-1", "1e9", "3 MB", "1.2.3", "٣", "1GiB 2", "inf", "9" * 30))
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(PoolUsageError):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "limit"),
    (
        ("1.05", Fraction(21, 20)),
        ("2", Fraction(2)),
        ("99.5", Fraction(199, 2)),
        ("100", 100),
        ("8b", 8),
        ("1GiB", 2**30),
        ("none", None),
    ),
)
def test_soft_limits(text: str, limit: Fraction | int | None) -> None:
    parsed = parse_soft_limit(text)
    assert parsed == limit
    assert type(parsed) is type(limit)


def test_what_is_no_soft_limit_is_refused() -> None:
    with pytest.raises(PoolUsageError, match="no amount of memory"):
        parse_soft_limit("little")
