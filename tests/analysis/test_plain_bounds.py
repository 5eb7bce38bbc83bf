"""Bounds that are plain from the form of an expression, beside all small values."""

from __future__ import annotations

import random
from itertools import product

from symalloc.analysis.kernels.index_bounds import divided, is_below
from symalloc.size.condition import lt
from symalloc.size.expr import ZERO, Expr, constant, floordiv, mod, symbol
from symalloc.size.sign import is_nonnegative
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
    for _ in range(tries(3_000, 60_000)):
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
    assert below > 100
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


def test_scalars_may_be_negative() -> None:
    assert is_nonnegative(A + N, frozenset())
    assert not is_nonnegative(A + N, frozenset("n"))


def test_quotients_come_out_even_or_not_at_all() -> None:
    n, m = symbol("n"), symbol("m")
    assert divided(4 * n * m + 6 * n, 2 * n) == 2 * m + 3
    assert divided(4 * n * m + 6 * n, 4 * n) is None
    assert divided(4 * n, m) is None
    assert divided(n * n + n, n + 1) is None, "only a width of one term is divided by"
    assert divided(n, ZERO) is None
