from __future__ import annotations

from symalloc.size.parse import parse_expr
from symalloc.size.sign import undominated


def texts(*sums: str) -> list[str]:
    return [str(kept) for kept in undominated(map(parse_expr, sums))]


def test_only_what_no_other_reaches_term_by_term_is_kept() -> None:
    assert texts("4*n", "8*n", "4*n") == ["8*n"]
    assert texts("4*n + 8", "8*n") == ["4*n + 8", "8*n"]
    assert texts("n*m", "n*m + 3", "2*m") == ["m*n + 3", "2*m"]
    assert texts() == []
    assert len(texts("n", "n % 4 + n - 3")) == 2  # the sign of the difference depends on n
