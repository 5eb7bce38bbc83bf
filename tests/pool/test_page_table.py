from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from symalloc.pool.core.page_table import PageTable

PAGE = 4096
SPAN = st.tuples(st.integers(0, 20 * PAGE), st.integers(1, 6 * PAGE))


@given(st.lists(st.tuples(st.booleans(), SPAN, st.sampled_from((1, 4))), max_size=40))
def test_pages_agree_with_a_set_of_pages(steps: list[tuple[bool, tuple[int, int], int]]) -> None:
    pages, backed = PageTable(PAGE), set[int]()
    for commits, (offset, nbytes), units in steps:
        grain = units * PAGE
        touched = set(range(offset // grain * units, -(-(offset + nbytes) // grain) * units))
        assert pages.missing(offset, nbytes, grain) == PAGE * len(touched - backed)
        if commits:
            pages.commit(offset, nbytes, grain)
            backed |= touched
        else:
            start, end = offset // PAGE * PAGE, (offset + nbytes) // PAGE * PAGE
            gone = {p for p in backed if start <= p * PAGE < end}
            highest = pages.highest_backed(start, end)
            assert highest == max(gone, default=None)
            assert pages.decommit(start, end) == PAGE * len(gone)
            backed -= gone
        assert pages.reserved == PAGE * len(backed)


def test_operations_are_counted_only_where_something_happens() -> None:
    pages = PageTable(PAGE)
    pages.commit(0, 3 * PAGE, PAGE)
    pages.commit(PAGE, PAGE, PAGE)
    pages.decommit(PAGE, 2 * PAGE)
    pages.decommit(5 * PAGE, 9 * PAGE)
    assert (pages.commits, pages.committed) == (1, 3 * PAGE)
    assert (pages.decommits, pages.decommitted) == (1, PAGE)
    assert pages.missing(0, 3 * PAGE, PAGE) == PAGE
    assert pages.missing(0, PAGE, PAGE) == 0
