from __future__ import annotations

import pytest

from symalloc.pool.core.thread_cache import (
    NEAR_MOST,
    NEAR_ROOM,
    LargeBlockCache,
    NearFitCache,
    SizeBins,
    ThreadCache,
)


def test_the_last_freed_of_the_exact_size_serves_first() -> None:
    bins = SizeBins(largest=256, capacity=1024)
    for address, nbytes in ((0, 64), (64, 128), (192, 64)):
        bins.put(address, nbytes)
    assert bins.held == 256
    assert [bins.take(64), bins.take(64), bins.take(64)] == [192, 0, None]
    assert bins.held == 128


def test_flushing_lets_every_block_go_once() -> None:
    bins = SizeBins(largest=256, capacity=1024)
    bins.put(0, 64)
    bins.put(64, 128)
    assert sorted(bins.flush()) == [(0, 64), (64, 128)]
    assert list(bins.flush()) == []
    assert bins.held == 0
    assert bins.take(64) is None


def test_room_is_bounded() -> None:
    bins = SizeBins(largest=256, capacity=256)
    assert bins.room(256)
    bins.put(0, 64)
    assert not bins.room(256)
    assert bins.room(192)


def _piece(most: int, *, choosy: bool = False) -> LargeBlockCache:
    piece = LargeBlockCache()
    piece.allow(most, choosy=choosy)
    return piece


def test_blocks_come_from_the_front() -> None:
    piece = _piece(1024)
    assert piece.take(64) is None
    assert piece.join(4096, 1024)
    assert [piece.take(256), piece.take(512), piece.take(512), piece.take(256)] == [4096, 4352, None, 4864]
    assert piece.held == 0


def test_a_choosy_piece_serves_what_leaves_little_of_it() -> None:
    piece = _piece(4096, choosy=True)
    assert piece.join(0, 4096)
    assert [piece.take(64), piece.take(3776), piece.take(3840), piece.take(256)] == [None, None, 0, 3840]


@pytest.mark.parametrize("order", ((0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)))
def test_blocks_that_touch_become_one(order: tuple[int, ...]) -> None:
    piece = _piece(768)
    assert all(piece.join(256 * at, 256) for at in order)
    assert list(piece.flush()) == [(0, 768)]


def test_a_gap_or_too_much_is_refused_and_changes_nothing() -> None:
    piece = _piece(512)
    assert not piece.join(0, 576)
    assert piece.join(256, 256)
    assert not piece.join(576, 64)
    assert not piece.join(128, 64)
    assert not piece.join(256, 256), "it is there already"
    assert not piece.join(512, 320), "more than the most"
    assert list(piece.flush()) == [(256, 256)]


def test_what_is_let_go_of_is_gone() -> None:
    piece = _piece(512)
    assert list(piece.flush()) == []
    piece.allow(512, choosy=False)
    assert piece.join(64, 512)
    assert list(piece.flush()) == [(64, 512)]
    assert list(piece.flush()) == []
    assert piece.take(64) is None
    assert not piece.join(0, 64), "nothing is held until it is allowed"


def test_the_smallest_block_of_nearly_a_size_serves() -> None:
    near_fits = NearFitCache()
    assert not near_fits.put(0, 64), "nothing is held until there is room"
    assert list(near_fits.make_room(0, 1000)) == []
    assert all(near_fits.put(*block) for block in ((0, 256), (1000, 320), (2000, 256)))
    assert near_fits.take(200, 250) is None
    assert [near_fits.take(200, 300) for _ in range(3)] == [(2000, 256), (0, 256), None]
    assert list(near_fits.flush()) == [(1000, 320)]
    assert near_fits.held == 0


def test_blocks_make_room_for_several_at_once() -> None:
    near_fits = NearFitCache()
    assert list(near_fits.make_room(0, 64 * NEAR_MOST)) == []
    assert all(near_fits.put(64 * at, 64) for at in range(NEAR_MOST))
    assert not near_fits.put(64 * NEAR_MOST, 64)
    gone = list(near_fits.make_room(64, 64 * NEAR_MOST))
    assert gone == [(64 * at, 64) for at in range(NEAR_MOST // NEAR_ROOM + 2)], "the oldest"
    assert all(near_fits.put(64 * (NEAR_MOST + at), 64) for at in range(len(gone)))
    assert list(near_fits.make_room(64, 64 * (NEAR_MOST + 1))) != []
    assert [*near_fits.make_room(64, 128), *near_fits.flush()][-1] == (64 * (NEAR_MOST + len(gone) - 1), 64)


def test_the_largest_block_may_take_all_room() -> None:
    near_fits = NearFitCache()
    assert list(near_fits.make_room(0, 1024)) == []
    assert near_fits.put(0, 512)
    assert list(near_fits.make_room(1024, 1024)) == [(0, 512)]
    assert near_fits.put(2048, 1024)


def test_small_blocks_serve_what_is_a_little_smaller() -> None:
    cache = ThreadCache(bin_largest=64 * 1024, bin_capacity=2**20)
    for address, nbytes in ((0, 20480), (2**20, 17408), (2**21, 8192)):
        assert list(cache.put(address, nbytes, peak=0, crowded=True, near=True)) == []
    assert list(cache.put(2**22, 16384, peak=0, crowded=False, near=False)) == []
    assert cache.take(16448, near=False) is None
    assert cache.take(8128, near=True) is None, "too small to have slack"
    sizes = [cache.take(16384, near=True) for _ in range(3)]
    assert sizes == [(2**22, 16384), (2**20, 17408), None], "those of the size itself first"
    assert (cache.bins.held, cache.near_fits.held) == (8192, 20480)


def test_a_very_large_piece_serves_blocks_of_a_medium_size_and_takes_them_back() -> None:
    cache = ThreadCache(bin_largest=64 * 1024, bin_capacity=2**20)

    def put(address: int, nbytes: int) -> list[tuple[int, int]]:
        return list(cache.put(address, nbytes, peak=2**24, crowded=False, near=False))

    assert put(0, 2**20) == []
    assert cache.take(20480, near=False) is None, "no more than the cache may hold: kept for large blocks"
    assert put(0, 2**22) == [(0, 2**20)]
    assert cache.take(8192, near=False) is None, "too small"
    assert [cache.take(n, near=False) for n in (20480, 16384)] == [(0, 20480), (20480, 16384)]
    assert put(0, 20480) == [], "it does not touch the piece: it goes to a bin"
    assert put(20480, 16384) == []
    assert (cache.bins.held, cache.large.held) == (20480, 2**22 - 20480)


def test_a_thread_cache_names_the_blocks_that_go_back_to_the_range() -> None:
    cache = ThreadCache(bin_largest=128, bin_capacity=256)

    def put(address: int, nbytes: int, peak: int = 0) -> list[tuple[int, int]]:
        return list(cache.put(address, nbytes, peak=peak, crowded=False, near=False))

    assert [*put(0, 128), *put(128, 128)] == []
    assert sorted(put(256, 64)) == [(0, 128), (128, 128)], "the bins are full, and emptied"
    assert put(1024, 512) == []
    assert put(4096, 512) == [(1024, 512)], "they do not touch, and the last freed stays"
    assert put(8192, 576) == [(4096, 512), (8192, 576)], "more than the cache may hold"
    assert put(8192, 576, peak=1024) == [], "as much as was in use before"
    assert cache.held == 640
    assert [cache.take(n, near=False) for n in (64, 64, 192)] == [(256, 64), None, (8192, 192)]
    assert put(16384, 256) == [(8384, 384)]
    assert list(cache.let_go()) == []
    assert list(cache.flush()) == [(16384, 256)]
    assert put(8192, 576, peak=1024) == []
    assert list(cache.let_go()) == [(8192, 576)]
