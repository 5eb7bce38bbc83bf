"""Folds of layered problems: what shares an offset is never live together; stackings stay at the floor."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.grid import Grid, sample_grid, score_grid
from symalloc.planner.interference import interference
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.stack import SearchBudget, folded, folds_of, search, unfolded
from symalloc.prover.domain import Domain
from symalloc.size.choice import maximum, minimum, select
from symalloc.size.condition import conjunction, disjunction, eq, le, ne
from symalloc.size.expr import Expr, constant, floordiv, mod, round_up, symbol
from tests.planner.brute_stackings import buffer, floor_at
from tests.scale import tries

N, M, K = symbol("n"), symbol("m"), symbol("k")
SIZES = (64 * N, 128 * N, constant(4096), 64 * N * N)


@st.composite
def layered(draw: st.DrawFn) -> tuple[Buffer, ...]:
    """Buffers before, in and behind equal layers; some live longer than a layer."""
    members = st.lists(st.tuples(st.integers(1, 9), st.sampled_from(SIZES)), min_size=1, max_size=6)
    before, layer, behind = draw(members), draw(members), draw(members)
    line = [*before, *(layer * draw(st.integers(20, 40))), *behind]
    return tuple(buffer(i, size, (i, i + length)) for i, (length, size) in enumerate(line))


def pairs(buffers: Sequence[Buffer]) -> set[tuple[int, int]]:
    return {(i, j) for i, others in enumerate(interference(buffers)) for j in others}


@settings(max_examples=tries(40, 400))
@given(layered(), st.integers(0, 99))
def test_what_is_folded_is_alike_and_never_live_together(buffers: tuple[Buffer, ...], seed: int) -> None:
    shuffled = tuple(Random(seed).sample(buffers, len(buffers)))
    classes = folded(shuffled)
    if classes is None:
        return
    assert sorted(unfolded(range(len(classes)), classes)) == list(range(len(buffers)))
    assert unfolded(range(len(classes)), classes) == [i for one in classes for i in one]
    assert 2 * len(classes) <= len(buffers)
    together = pairs(shuffled)
    for members in classes:
        assert len({(shuffled[i].size, shuffled[i].alignment) for i in members}) == 1
        assert not any((i, j) in together for i in members for j in members)
    found = folds_of(shuffled, classes)
    number = {i: n for n, members in enumerate(classes) for i in members}
    assert pairs(found) == {(number[i], number[j]) for i, j in together}
    for n in (1, 17, 300):
        assert floor_at(found, {"n": n}) == floor_at(shuffled, {"n": n})


def decoder(layers: int, odd: Expr | None = None) -> tuple[Buffer, ...]:
    """A residual stream and two things that come and go, layer by layer; `odd` is in the middle layer."""
    line: list[tuple[Expr, int, int]] = []
    for layer in range(layers):
        at = 5 * layer
        line += [(64 * N, at, at + 6), (64 * N * N, at + 1, at + 3), (128 * N, at + 2, at + 5)]
        line += [(odd, at + 4, at + 5)] if odd is not None and layer == layers // 2 else []
    return tuple(buffer(i, size, (begin, end)) for i, (size, begin, end) in enumerate(line))


def test_layers_are_folded_to_one_and_what_outlives_a_layer_to_two() -> None:
    classes = folded(decoder(80))
    assert classes is not None
    assert sorted(map(len, classes))[-5:] == [1, 29, 30, 58, 59]
    buffers = decoder(160, odd=constant(192))  # layers on both sides of an odd one
    classes = folded(buffers)
    assert classes is not None and len(classes) <= len(buffers) // 3


def test_what_does_not_repeat_is_not_folded() -> None:
    assert folded([buffer(i, 64 * (i + 1), (i, i + 2)) for i in range(40)]) is None
    assert folded(decoder(3)) is None
    assert folded([]) is None


def test_a_deep_model_is_at_the_floor_with_little_work() -> None:
    buffers = decoder(300)
    found = search(buffers, {}, SearchBudget(work=0))
    assert found.score.worst == 1.0
    assert sorted(found.stacking.order) == list(range(len(buffers)))


EXPRESSIONS = (
    4 * N * N * M - 3 * N + 7,
    round_up(4 * N, 64),
    mod(N - 50, 7),
    floordiv(N - 50, M),
    maximum(64 * N, 4096, 32 * M),
    minimum(64 * N, 4096),
    select(le(N, M), N * N, M),
)
CONDITIONS = (
    le(N, 17),
    eq(mod(N, 2), 0),
    ne(N, M),
    conjunction((le(N, 100), le(M, 3))),
    disjunction((le(N, 1), le(700, M))),
)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 5000)), min_size=1, max_size=8))
def test_all_points_at_once_give_what_each_gives_alone(points: list[tuple[int, int]]) -> None:
    grid = Grid(names=("n", "m"), points=tuple(points))
    exprs = (*EXPRESSIONS, *(select(condition, N, M) for condition in CONDITIONS))
    for row, expr in zip(grid.values(exprs), exprs, strict=True):
        assert row.tolist() == [expr.evaluate(grid.binding(i)) for i in range(len(grid))]


def test_what_is_undefined_at_a_point_leaves_the_other_sizes_there_defined() -> None:
    grid = Grid(names=("m", "n"), points=((0, 50), (2, 80)))
    values = grid.values((64 * N + 2 * floordiv(N, M), 32 * N + M, floordiv(N, M)))
    assert np.isfinite(values[:, 0]).tolist() == [False, True, False]
    assert values[:, 1].tolist() == [64 * 80 + 80, 32 * 80 + 2, 40]
    assert values[1, 0] == 32 * 50


@pytest.mark.parametrize(
    ("sizes", "ranges"),
    [
        ((64 * N,), {"n": (1, 8)}),
        ((64 * N * M, 64 * M), {"n": (1, 1024), "m": (1, 8)}),
        ((64 * N * M * K,), {}),
    ],
)
def test_it_goes_from_the_least_extents_far_past_declared_bounds(
    sizes: tuple[Expr, ...], ranges: dict[str, tuple[int, int | None]]
) -> None:
    grid = score_grid(sizes, ranges)
    table = np.array(grid.points)
    assert (table.min(axis=0) == 1).all()
    assert (table.max(axis=0) >= 4096).all()
    assert len(set(grid.points)) == len(grid) <= 512


def test_no_point_lies_below_a_declared_minimum_and_what_is_asked_for_is_one() -> None:
    grid = score_grid((64 * N * M,), {"n": (48, None), "m": (3, 3)})
    assert all(n >= 48 and m >= 3 for m, n in grid.points)
    assert (3, 48) in grid.points
    asked = score_grid((N * M, M), {}, [{"n": 7, "m": 11, "k": 3}, {"n": 0, "m": 12_345}])
    found = [dict(zip(asked.names, point, strict=True)) for point in asked.points]
    assert {"n": 7, "m": 11} in found and {"n": 0, "m": 12_345} in found
    assert len(asked) == len(score_grid((N * M, M), {})) + 2


@pytest.mark.parametrize(
    ("left", "right", "last"), [(64 * N, 4096 + 32 * N, 128), (3 * N * N, 1000 * N, 333)]
)
def test_both_sides_of_a_crossing_are_points(left: Expr, right: Expr, last: int) -> None:
    points = {n for (n,) in score_grid((left, right), {}).points}
    assert {last, last + 1} <= points


def test_the_nearest_point_is_found_by_ratio() -> None:
    grid = Grid(names=("n",), points=((1,), (100,), (1000,)))
    wanted = [{"n": n} for n in (0, 8, 12, 400, 10**6)]
    assert list(map(grid.nearest, wanted)) == [0, 0, 1, 2, 2]


def test_samples_lie_inside_the_domain() -> None:
    domain = Domain(lower={"n": 5}, upper={"m": 3}, assumptions=(le(symbol("n"), 200),))
    found = sample_grid(domain, ("m", "n"))
    assert found.points and all(domain.contains(found.binding(i)) for i in range(len(found)))
    assert not sample_grid(Domain(assumptions=(le(symbol("n"), -1),)), ("n",)).points
    assert not sample_grid(Domain(lower={"n": 5}, upper={"n": 4}), ("n",)).points
    assert sample_grid(Domain(), ()).binding(0) == {}
