"""The elements that a store reaches, beside those of its passes one by one."""

from __future__ import annotations

import random
from itertools import product

import pytest

from symalloc.analysis.kernels.coverage import accessed_elements, element_index
from symalloc.program.ir import KernelAccess, KernelLoop
from symalloc.size.condition import Condition, ge, le, lt, ne
from symalloc.size.expr import Expr, ceildiv, constant, floordiv, mod, symbol
from tests.scale import tries

N, M = symbol("n"), symbol("m")
SIZES = range(5)


def _loops(draw: random.Random) -> tuple[KernelLoop, ...]:
    passes = [N, M, N + 1, M - 1, N * M, N * M - 1, constant(2), constant(4), ceildiv(N, 4), floordiv(N, 2)]
    return tuple(
        KernelLoop(symbol=name, passes=draw.choice(passes)) for name in ("i", "j")[: draw.randint(1, 2)]
    )


def _indices(draw: random.Random, counters: list[Expr]) -> tuple[Expr | None, ...]:
    one, other = counters[0], counters[-1]
    single: list[Expr] = [
        *(one, one * 2, one * 2 + 1, N - 1 - one, one * 4 + other, one * 2 + other, other * M + one),
        *(one * M + other, one + other, one * 4 + other * 2, floordiv(one, 2), one - mod(one, 2) * 2 + 1),
        *(one - 1, constant(0)),
    ]
    pairs = [
        (one, other),
        (other, one),
        (floordiv(one, M), mod(one, M)),
        (floordiv(one, 2), mod(one, 2)),
        (floordiv(mod(one, 4), 2), mod(one, 2)),
        (floordiv(one, M * 2), mod(floordiv(one, 2), M)),
        (draw.choice(single), draw.choice(single)),
    ]
    found: tuple[Expr | None, ...] = (draw.choice(single),) if draw.random() < 0.6 else draw.choice(pairs)
    return (None, *found[1:]) if draw.random() < 0.05 else found


def _guards(draw: random.Random, counters: list[Expr]) -> tuple[Condition, ...]:
    one, other = counters[0], counters[-1]
    some = [lt(one * 4 + other, N), le(one, other), lt(one, N), ne(one, 1)]
    some += [lt(one + 1, M), le(N, 3), lt(other, 2)]
    return tuple(draw.sample(some, draw.choice((0, 0, 1, 2))))


def _points(access: KernelAccess, sizes: dict[str, int]) -> list[dict[str, int]]:
    """The passes at which an access is executed."""
    counts = [
        range(10) if loop.passes is None else range(loop.passes.evaluate(sizes)) for loop in access.loops
    ]
    names = [loop.symbol for loop in access.loops]
    points = (sizes | dict(zip(names, values, strict=True)) for values in product(*counts))
    return [point for point in points if all(condition.evaluate(point) for condition in access.domain)]


@pytest.mark.parametrize("seed", range(tries(60, 3000)))
def test_the_condition_holds_at_what_is_stored_and_if_exact_nowhere_else(seed: int) -> None:
    draw = random.Random(seed)
    loops = _loops(draw)
    counters = [symbol(loop.symbol) for loop in loops]
    ends = [
        c for loop in loops for c in (ge(symbol(loop.symbol), 0), lt(symbol(loop.symbol), loop.passes or 0))
    ]
    access = KernelAccess(
        parameter=0,
        kind="store",
        indices=_indices(draw, counters),
        domain=(*ends, *_guards(draw, counters)),
        loops=loops,
    )
    shape = [draw.choice([N, M, N + M, N * M, constant(4)]) for _ in access.indices]
    found = accessed_elements(access, shape, frozenset())
    where, exact = found.condition, found.exact
    for n, m in product(SIZES, SIZES[1:]):  # `m` is a divisor
        sizes = {"n": n, "m": m}
        stored = {
            tuple(None if index is None else index.evaluate(at) for index in access.indices)
            for at in _points(access, sizes)
        }
        for element in product(*(range(extent.evaluate(sizes)) for extent in shape)):
            at = sizes | {element_index(axis).as_symbol or "": value for axis, value in enumerate(element)}
            told = where.evaluate(at)
            fits = (all(a in (None, b) for a, b in zip(s, element, strict=True)) for s in stored)
            really = any(fits)
            assert told or not really, (access, shape, at, where)
            assert really or not told or not exact, (access, shape, at, where)
