"""Folds of layered problems: what shares an offset is never live together; stackings stay at the floor."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.fold import folded, folds_of, unfolded
from symalloc.planner.interference import interference
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.stack import SearchBudget, search
from symalloc.size.expr import Expr, constant, symbol
from tests.planner.brute_stackings import floor_at
from tests.scale import tries

N = symbol("n")
SIZES = (64 * N, 128 * N, constant(4096), 64 * N * N)


@st.composite
def layered(draw: st.DrawFn) -> tuple[Buffer, ...]:
    """Buffers before, in and behind equal layers; some live longer than a layer."""
    members = st.lists(st.tuples(st.integers(1, 9), st.sampled_from(SIZES)), min_size=1, max_size=6)
    before, layer, behind = draw(members), draw(members), draw(members)
    line = [*before, *(layer * draw(st.integers(4, 12))), *behind]
    return tuple(
        Buffer(id=i, name=f"b{i}", size=size, live=((i, i + length),))
        for i, (length, size) in enumerate(line)
    )


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
    return tuple(Buffer(id=i, name=f"b{i}", size=s, live=((b, e),)) for i, (s, b, e) in enumerate(line))


def test_layers_are_folded_to_one_and_what_outlives_a_layer_to_two() -> None:
    classes = folded(decoder(20))
    assert classes is not None
    assert sorted(map(len, classes)) == [10, 10, 20, 20]


def test_layers_on_both_sides_of_an_odd_one_are_folded() -> None:
    buffers = decoder(20, odd=constant(192))
    classes = folded(buffers)
    assert classes is not None
    assert len(classes) <= len(buffers) // 4


def test_what_does_not_repeat_is_not_folded() -> None:
    line = [Buffer(id=i, name=f"b{i}", size=constant(64 * (i + 1)), live=((i, i + 2),)) for i in range(40)]
    assert folded(line) is None
    assert folded(decoder(3)) is None
    assert folded([]) is None


def test_a_deep_model_is_at_the_floor_with_little_work() -> None:
    buffers = decoder(300)
    found = search(buffers, {}, SearchBudget(work=0))
    assert found.score.worst == 1.0
    assert sorted(found.stacking.order) == list(range(len(buffers)))
