"""What ranges leave out of another, compared with sets of numbers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.analysis.kernels.uninitialized import Range, WrittenRange, left_out
from symalloc.size.condition import ge
from symalloc.size.expr import Expr, constant, symbol
from tests.scale import tries

_N, _K = symbol("n"), symbol("k")
_ENDS: tuple[Expr, ...] = (constant(0), constant(2), _K, _K + 1, _N - _K, _N, _N + 2)
_end = st.sampled_from(_ENDS)
_written = st.builds(WrittenRange, _end, _end, st.sampled_from([ge(0, 0), ge(_K, 3), ge(_N, _K)]))


def _numbers(one: Range | WrittenRange, point: dict[str, int]) -> set[int]:
    return set(range(one.begin.evaluate(point), one.end.evaluate(point)))


@given(
    wanted=st.builds(Range, _end, _end),
    written=st.lists(_written, max_size=2),
    n=st.integers(0, 9),
    k=st.integers(0, 9),
)
@settings(max_examples=tries(150, 3000), deadline=None)
def test_it_is_positive_exactly_where_a_number_is_left_out(
    wanted: Range, written: list[WrittenRange], n: int, k: int
) -> None:
    point = {"n": n, "k": k}
    found = left_out(wanted, written)
    assert found is not None
    there = (_numbers(one, point) for one in written if one.condition.evaluate(point))
    left = _numbers(wanted, point).difference(*there)
    assert (found.evaluate(point) > 0) == bool(left)


def test_ranges_side_by_side_are_one() -> None:
    parts = [WrittenRange(_K * i, _K * (i + 1)) for i in range(8)]
    found = left_out(Range(constant(0), _K * 8), parts)
    assert found is not None
    assert found.evaluate({"k": 5}) <= 0


def test_too_many_are_not_told() -> None:
    parts = [WrittenRange(symbol(f"a{i}"), symbol(f"b{i}")) for i in range(3)]
    assert left_out(Range(constant(0), _N), parts) is None
