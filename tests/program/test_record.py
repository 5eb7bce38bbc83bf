"""Records: late tuples, and the collector, which is off inside and as before outside."""

from __future__ import annotations

import gc
import pickle

import pytest

from symalloc.program.record import DeferredTuple, no_collections


def test_off_inside_and_on_again_behind_an_error() -> None:
    with pytest.raises(KeyError), no_collections():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_left_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with no_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_items_are_made_once_when_they_are_asked_for() -> None:
    made: list[int] = []

    def make() -> tuple[int, ...]:
        made.append(len(made))
        return (3, 4, 5)

    items = DeferredTuple(make)
    assert made == []
    assert [*items, *items] == [3, 4, 5, 3, 4, 5]
    assert (len(items), items[1], items[1:], items[-1]) == (3, 4, (4, 5), 5)
    assert made == [0]


def test_it_equals_what_has_the_same_items() -> None:
    items = DeferredTuple(lambda: (3, 4))
    assert items == (3, 4)
    assert (3, 4).__eq__(items) is NotImplemented  # so that Python asks the other side
    assert items == DeferredTuple(lambda: (3, 4))
    assert items != (3,)
    assert hash(items) == hash((3, 4))


def test_it_pickles_as_a_plain_tuple() -> None:
    copied = pickle.loads(pickle.dumps(DeferredTuple(lambda: (3, (4, 5)))))
    assert type(copied) is tuple
    assert copied == (3, (4, 5))
