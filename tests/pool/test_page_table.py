from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from symalloc.pool.core.page_table import PageTable

PAGE = 4096
SPAN = st.tuples(st.integers(0, 20 * PAGE), st.integers(1, 6 * PAGE))


def _touched(offset: int, nbytes: int) -> set[int]:
    return set(range(offset // PAGE, (offset + nbytes - 1) // PAGE + 1))


def _inside(offset: int, nbytes: int) -> set[int]:
    return {p for p in _touched(offset, nbytes) if p * PAGE >= offset and (p + 1) * PAGE <= offset + nbytes}


@given(st.lists(st.tuples(st.booleans(), SPAN, st.integers(0, 5 * PAGE)), max_size=40))
def test_pages_agree_with_a_set_of_pages(steps: list[tuple[bool, tuple[int, int], int]]) -> None:
    pages, backed = PageTable(PAGE), set[int]()
    for commits, (offset, nbytes), wanted in steps:
        assert pages.missing(offset, nbytes) == PAGE * len(_touched(offset, nbytes) - backed)
        if commits:
            pages.commit(offset, nbytes)
            backed |= _touched(offset, nbytes)
        else:
            given = pages.decommit(offset, offset + nbytes, wanted)
            able = sorted(_inside(offset, nbytes) & backed, reverse=True)
            gone = able[: -(-wanted // PAGE)]
            assert given == PAGE * len(gone)
            backed -= set(gone)
        assert pages.reserved == PAGE * len(backed)


def test_operations_are_counted_only_where_something_happens() -> None:
    pages = PageTable(PAGE)
    pages.commit(0, 3 * PAGE)
    pages.commit(PAGE, PAGE)
    pages.decommit(0, 2 * PAGE, PAGE)
    pages.decommit(5 * PAGE, 9 * PAGE, PAGE)
    assert (pages.commits, pages.committed) == (1, 3 * PAGE)
    assert (pages.decommits, pages.decommitted) == (1, PAGE)
    assert pages.missing(0, 3 * PAGE) == PAGE
    assert pages.missing(0, PAGE) == 0, "the higher of the two pages went"
