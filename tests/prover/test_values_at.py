"""Values that share what they are made of are those of each expression by itself."""

from __future__ import annotations

from symalloc.prover.ordering import ValuesAt
from symalloc.size.choice import maximum, minimum, select
from symalloc.size.condition import eq, le, ne
from symalloc.size.expr import Expr, floordiv, mod, symbol

N, M = symbol("n"), symbol("m")


def _nested(depth: int) -> Expr:
    """Maxima within each other, of which a walk would visit 3**depth."""
    found = N
    for level in range(depth):
        found = maximum(found + level * M, found + 7, 2 * found - M)
    return found


def test_each_value_is_that_of_the_expression() -> None:
    exprs = [
        _nested(4) + 3 * N * M**2,
        minimum(floordiv(N * M, 5), mod(N + 3, 4) - M),
        select(le(N, M), N + 1, M - 1) + select(eq(N, M), 5, N) + select(ne(N, 3), M, 2 * M),
    ]
    points = [{"n": n, "m": m} for n in (0, 3, 8, 1000) for m in (0, 3, 7)]
    values = ValuesAt(points)
    for expr in exprs:
        assert values.values(expr) == [expr.evaluate(point) for point in points]


def test_a_zero_divisor_has_no_value() -> None:
    values = ValuesAt([{"n": 6, "m": 0}, {"n": 6, "m": 4}])
    assert values.values(1 + floordiv(N, M)) == [None, 2] and values.values(N + M) == [6, 10]


def test_what_is_nested_is_evaluated_once() -> None:
    values = ValuesAt([{"n": 6, "m": 2}])
    assert None not in values.values(_nested(7))
    assert len(values.memo) < 100


def test_what_is_nested_is_evaluated_once_where_a_divisor_is_zero_at_one_point() -> None:
    looked_at: list[str] = []

    class Point(dict[str, int]):
        def __getitem__(self, name: str) -> int:
            looked_at.append(name)
            return super().__getitem__(name)

    values = ValuesAt([Point(n=6, m=2), Point(n=6, m=0)])
    assert values.values(floordiv(_nested(7), M))[1] is None
    assert len(looked_at) < 200
