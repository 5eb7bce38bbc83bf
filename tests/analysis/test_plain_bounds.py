"""Bounds that are plain from the form of an expression, and what ranges leave out of another: by numbers."""

from __future__ import annotations

import random
from itertools import pairwise, product

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.analysis.kernels.coverage import Elements, Range, element_index
from symalloc.analysis.kernels.index_bounds import is_below
from symalloc.analysis.kernels.uninitialized import MemoryRange, gap_between, left_out
from symalloc.analysis.regions import Region, RegionKind
from symalloc.program.ir import Var
from symalloc.program.types import DType, TensorType
from symalloc.size.choice import is_nonnegative, minimum
from symalloc.size.condition import ge, lt
from symalloc.size.expr import Expr, constant, floordiv, mod, symbol
from tests.scale import tries

A, B, N, M = map(symbol, "abnm")
SIZES = (constant(1), constant(3), constant(8), N, M, N * M, 4 * N)


def drawn(draw: random.Random, depth: int = 3) -> Expr:
    """An expression as fused loops and reshapes compute it."""
    if depth == 0:
        return draw.choice((A, B, A * 8 + B, A * N + B, constant(draw.randrange(4))))
    inner = drawn(draw, depth - 1)
    match draw.randrange(4):
        case 0:
            return floordiv(inner, draw.choice(SIZES))
        case 1:
            return mod(inner, draw.choice(SIZES))
        case 2:
            return floordiv(inner, draw.choice(SIZES)) * draw.choice(SIZES) + drawn(draw, depth - 1)
    return inner + draw.choice((0, 1, -1)) * drawn(draw, depth - 1)


def test_what_is_plain_is_true() -> None:
    draw = random.Random(1)
    below = nonnegative = 0
    for _ in range(tries(800, 60_000)):
        expr, end = drawn(draw), draw.choice(SIZES) * draw.choice(SIZES)
        fact = lt(drawn(draw, 1), draw.choice(SIZES) * draw.choice(SIZES))
        plain = is_below(expr, end, (fact,), frozenset()), is_nonnegative(expr, frozenset())
        below, nonnegative = below + plain[0], nonnegative + plain[1]
        if not any(plain):
            continue
        for values in product((0, 1, 2, 5), (0, 1, 3, 7), (1, 2, 4), (1, 2, 3)):
            point = dict(zip("abnm", values, strict=True))
            if plain[1]:
                assert expr.evaluate(point) >= 0, (expr, point)
            if plain[0] and fact.evaluate(point):
                assert expr.evaluate(point) < end.evaluate(point), (expr, end, fact, point)
    assert below > 50
    assert nonnegative > 100


def test_a_fused_loop_with_a_guard() -> None:
    fused = 32 * A + B
    inside = (lt(fused, 8 * N * M),)
    row, column = floordiv(fused, 8 * M), floordiv(mod(fused, 8 * M), 8)
    assert is_below(row, N, inside, frozenset())
    assert is_below(column, M, inside, frozenset())
    assert is_below(row * M + column, N * M, inside, frozenset())
    assert not is_below(row, N, (), frozenset())
    assert not is_below(row * M + column + 1, N * M, inside, frozenset())


# -- the part of a range that others leave out --------------------------------------------------------------


_ENDS: tuple[Expr, ...] = (constant(0), constant(2), A, A + 1, N - A, N, N + 2)
_end = st.sampled_from(_ENDS)
_written = st.builds(Range, _end, _end, st.sampled_from([ge(0, 0), ge(A, 3), ge(N, A)]))


def _numbers(one: Range, point: dict[str, int]) -> set[int]:
    return set(range(one.begin.evaluate(point), one.end.evaluate(point)))


@given(
    wanted=st.builds(Range, _end, _end),
    written=st.lists(_written, max_size=4),
    n=st.integers(0, 9),
    k=st.integers(0, 9),
)
@settings(max_examples=tries(75, 3000), deadline=None)
def test_it_is_positive_exactly_where_a_number_is_left_out(
    wanted: Range, written: list[Range], n: int, k: int
) -> None:
    point = {"n": n, "a": k}
    found = left_out(wanted, written)
    if found is None:
        assert len(set(written)) > 2
        return
    there = (_numbers(one, point) for one in written if one.condition.evaluate(point))
    left = _numbers(wanted, point).difference(*there)
    assert (found.evaluate(point) > 0) == bool(left)


def test_the_gap_of_many_columns_is_what_none_of_them_has() -> None:
    draw, kind = random.Random(3), TensorType(shape=(constant(2), N), dtype=DType("float32", 32))
    region = Region(0, RegionKind.FRESH, "t", Var("t", kind), None, None, 0, constant(0), 8 * N)
    single = 0
    for _ in range(tries(60, 2_000)):
        step, wild = floordiv(N + 3, 4), draw.random() < 0.5
        ends = [minimum(step * at, N) for at in range(5)]
        if wild:
            ends[draw.randrange(5)] = draw.choice((N - step, step + 1, constant(3), minimum(N, 2)))
        ranges = [Range(*pair) for pair in pairwise(ends)]
        if draw.random() < 0.3:
            del ranges[draw.randrange(4)]
        found = gap_between(
            MemoryRange(region, kind, Elements((None, None))),
            [MemoryRange(region, kind, Elements((None, one))) for one in ranges],
        )
        assert found is not None and found.passes is not None
        single += str(found.where).count("i1'") <= 2
        for n, row, column in product(range(10), range(2), range(10)):
            if column < n:
                at = {"n": n, "i0'": row, "i1'": column}
                assert element_index(1).evaluate(at) == column
                held = any(one.begin.evaluate(at) <= column < one.end.evaluate(at) for one in ranges)
                assert found.lacking.evaluate(at) == (not held), (ranges, at)
    assert single > 10, "pieces side by side are one question"
