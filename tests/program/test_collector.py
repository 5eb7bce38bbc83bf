"""The collector is off inside and as before outside, also behind an error."""

from __future__ import annotations

import gc

import pytest

from symalloc.program.record import no_collections


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
