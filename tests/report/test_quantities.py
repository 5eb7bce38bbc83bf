from __future__ import annotations

import pytest

from symalloc.report.quantities import human_bytes, percent, times


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**20, "1.0 MiB"),
        (3 * 2**40, "3.0 TiB"),
        (2**63 - 1, "8.0 EiB"),
        (2**126, "7.4e+19 EiB"),
        (None, "-"),
    ],
)
def test_bytes(count: int | None, text: str) -> None:
    assert human_bytes(count) == text


def test_ratios() -> None:
    assert [times(r) for r in (1.0, 1.0004, 123456.0, None)] == ["1.000", "1.000", "1.23e+05", "-"]
    assert [percent(s) for s in (0.0, 0.8766, None)] == ["0.0%", "87.7%", "-"]
