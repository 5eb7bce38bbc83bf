from __future__ import annotations

import pytest

from symalloc.pool.piece import Piece


def test_blocks_come_from_the_front() -> None:
    piece = Piece(most=1024)
    assert piece.take(64) is None
    assert piece.join(4096, 1024)
    assert [piece.take(256), piece.take(512), piece.take(512), piece.take(256)] == [4096, 4352, None, 4864]
    assert piece.nbytes == 0


@pytest.mark.parametrize("order", ((0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)))
def test_blocks_that_touch_become_one(order: tuple[int, ...]) -> None:
    piece = Piece(most=768)
    assert all(piece.join(256 * at, 256) for at in order)
    assert piece.flush() == (0, 768)


def test_a_gap_or_too_much_is_refused_and_changes_nothing() -> None:
    piece = Piece(most=512)
    assert not piece.join(0, 576)
    assert piece.join(256, 256)
    assert not piece.join(576, 64)
    assert not piece.join(128, 64)
    assert not piece.join(256, 256), "it is there already"
    assert not piece.join(512, 320), "more than the most"
    assert piece.flush() == (256, 256)


def test_what_is_let_go_of_is_gone() -> None:
    piece = Piece(most=512)
    assert piece.flush() is None
    assert piece.join(64, 512)
    assert piece.flush() == (64, 512)
    assert piece.flush() is None
    assert piece.take(64) is None
    assert piece.join(0, 64)
