from __future__ import annotations

from symalloc.pool.bins import Bins


def test_the_last_freed_of_the_exact_size_serves_first() -> None:
    bins = Bins(largest=256, capacity=1024)
    for address, nbytes in ((0, 64), (64, 128), (192, 64)):
        bins.put(address, nbytes)
    assert bins.held == 256
    assert [bins.take(64), bins.take(64), bins.take(64)] == [192, 0, None]
    assert bins.held == 128


def test_flushing_lets_every_block_go_once() -> None:
    bins = Bins(largest=256, capacity=1024)
    bins.put(0, 64)
    bins.put(64, 128)
    assert sorted(bins.flush()) == [(0, 64), (64, 128)]
    assert list(bins.flush()) == []
    assert bins.held == 0
    assert bins.take(64) is None


def test_room_is_bounded() -> None:
    bins = Bins(largest=256, capacity=256)
    assert bins.room(256)
    bins.put(0, 64)
    assert not bins.room(256)
    assert bins.room(192)
