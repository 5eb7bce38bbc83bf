from __future__ import annotations

import gc

import numpy as np
import pytest

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import BadFreeError, BoundsError, PoolUsageError

pytestmark = pytest.mark.usefixtures("native")


def test_a_view_is_the_memory_of_the_block() -> None:
    pool = InstrumentedPool()
    with pool.alloc(64) as block:
        words = block.view("int32", (4, 4))
        words[:] = np.arange(16).reshape(4, 4)
        assert words.ctypes.data == block.pointer
        assert block.view("int32").tolist() == list(range(16))
        assert block.view().shape == (64,)
        assert block.view(np.float64, 3).shape == (3,)
        assert block.view("int8", ()).shape == ()
        assert block.view("int8", (0, 7)).size == 0
        del words
    assert pool.statistics().live == 0


def test_a_view_keeps_the_block() -> None:
    pool = InstrumentedPool()
    block = pool.alloc(800)
    part = block.view("float64")[10:20].T
    part[:] = 7
    block.free()
    assert pool.statistics().live == 800
    assert part.sum() == 70
    del block, part
    gc.collect()
    assert pool.statistics().live == 0


def test_a_view_keeps_the_pool() -> None:
    pool = InstrumentedPool()
    view = pool.alloc(8).view("int64")
    del pool
    gc.collect()
    view[0] = 5
    assert view[0] == 5


def test_a_freed_block_has_no_view() -> None:
    pool = InstrumentedPool()
    block = pool.alloc(64)
    block.free()
    with pytest.raises(BadFreeError, match="stale"):
        block.view()


def test_a_view_lies_within_the_block() -> None:
    block = InstrumentedPool().alloc(10)
    assert block.view("int32").shape == (2,)
    for dtype, shape in (("int32", 3), ("int8", 11), ("int64", (2, 2**60))):
        with pytest.raises(BoundsError, match="10 bytes of the block"):
            block.view(dtype, shape)


@pytest.mark.parametrize(
    "dtype, shape", [("O", 1), ("no", 1), ("V0", 1), ("int8", -1), ("int8", "x"), ("int8", 1.5)]
)
def test_what_is_no_dtype_or_shape_is_refused(dtype: str, shape: int) -> None:
    pool = InstrumentedPool()
    with pytest.raises(PoolUsageError), pool.alloc(64) as block:
        block.view(dtype, shape)
