"""Sums over columns, against adding each stretch by itself."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from symalloc.planner import grid
from symalloc.planner.buffers.held_sums import MOST_KINDS, HeldColumns, held_sums

COLUMNS = 40
HELD = [[(0, 2, 5)], [], [(0, 0, 1), (1, 7, 9)], [(0, 3, 3)]]


@pytest.mark.parametrize("kinds", [1, 5, MOST_KINDS + 1])
@pytest.mark.parametrize("products", [1, 300, grid.MOST_PRODUCTS])
def test_each_column_has_the_sum_of_what_is_held_there(
    kinds: int, products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "MOST_PRODUCTS", products)
    random = Random(kinds)
    sizes = np.array([[float(random.randrange(2**40)) for _ in range(3)] for _ in range(kinds + 2)])
    of = [random.randrange(kinds) for _ in range(3 * kinds)]
    of[:kinds] = range(kinds)
    spans = [sorted(random.choices(range(COLUMNS + 1), k=2)) for _ in of]
    expected = np.zeros((COLUMNS, 3))
    for kind, (begin, end) in zip(of, spans, strict=True):
        expected[begin:end] += sizes[kind]
    begins, ends = np.array(spans).T
    assert (held_sums(begins, ends, np.array(of), sizes, COLUMNS) == expected).all()


def test_stretches_are_found_by_what_is_held() -> None:
    held = HeldColumns.of(HELD)
    places, owners = held.chosen(np.array([2, 1, 0, 2]))
    found = zip(held.begins[places].tolist(), held.ends[places].tolist(), owners.tolist(), strict=True)
    assert list(found) == [(0, 1, 0), (7, 9, 0), (2, 5, 2), (0, 1, 3), (7, 9, 3)]
    assert held.bounds(np.array([0, 2])) == (0, 9)
    assert held.bounds(np.array([0, 3])) == (2, 5)
    assert held.bounds(np.array([1])) == (0, 0)
    begins, ends = held.single([3, 0])
    assert (begins.tolist(), ends.tolist()) == ([3, 2], [3, 5])


def test_nothing_is_held() -> None:
    held = HeldColumns.of([])
    places, owners = held.chosen(np.arange(0))
    kinds = np.zeros(0, dtype=np.int64)[owners]
    assert not held_sums(held.begins[places], held.ends[places], kinds, np.zeros((0, 2)), 3).any()
