from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symalloc.pool.core import free_list
from symalloc.pool.core.free_list import FreeList, round_up

CAPACITY = 64


def _free(taken: list[bool]) -> list[tuple[int, int]]:
    """The free intervals, read off a map with one entry a byte."""
    edges = [i for i in range(CAPACITY + 1) if (i == CAPACITY or taken[i]) != (i == 0 or taken[i - 1])]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _place(taken: list[bool], nbytes: int, align: int, best_fit: int) -> int | None:
    fits = [o for o in range(0, CAPACITY - nbytes + 1, align) if not any(taken[o : o + nbytes])]
    if nbytes > best_fit:
        return next(iter(fits), None)
    around = {o: next(e - s for s, e in _free(taken) if s <= o < e) for o in fits}
    return min(fits, key=lambda o: (around[o], o), default=None)


@pytest.mark.parametrize("best_fit", (0, 10, 20))
@given(st.lists(st.tuples(st.integers(1, 20), st.sampled_from((1, 2, 4, 8)), st.integers(0, 2)), max_size=60))
def test_holes_agree_with_a_map_of_every_byte(best_fit: int, steps: list[tuple[int, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(free_list, "BEST_FIT", best_fit)
        _compare(best_fit, steps)


def _compare(best_fit: int, steps: list[tuple[int, int, int]]) -> None:
    free, taken = FreeList(CAPACITY), [False] * CAPACITY
    blocks: list[tuple[int, int]] = []
    for nbytes, align, frees in steps:
        offset = free.find(nbytes, align)
        assert offset == _place(taken, nbytes, align, best_fit)
        if offset is not None:
            free.take(offset, nbytes)
            taken[offset : offset + nbytes] = [True] * nbytes
            blocks.append((offset, nbytes))
        for _ in range(min(frees, len(blocks))):
            start, size = blocks.pop(nbytes % len(blocks))
            free.put(start, size)
            taken[start : start + size] = [False] * size
        assert list(free) == _free(taken)
        assert list(reversed(free)) == _free(taken)[::-1]
        assert len(free) == len(_free(taken))
    for start, size in blocks:
        free.put(start, size)
    assert list(free) == [(0, CAPACITY)]


def test_what_alignment_leaves_in_front_stays_free() -> None:
    free = FreeList(CAPACITY)
    free.take(0, 3)
    offset = free.find(8, 8)
    assert offset == 8
    free.take(offset, 8)
    assert list(free) == [(3, 8), (16, CAPACITY)]


def test_rounding_up() -> None:
    assert [round_up(n, 4) for n in (0, 1, 4, 5)] == [0, 4, 4, 8]
