"""Buffers of one address."""

from __future__ import annotations

import numpy as np
import pytest

from symalloc import BoundsError, PoolUsageError, ReservedBuffer


def test_pages_follow_and_the_address_stays() -> None:
    buffer = ReservedBuffer("16MiB")
    address = buffer.address
    assert address % 4096 == 0
    for nbytes in (0, 1, 4096, 4097, 1 << 24, 3 << 20, 5, 0):
        tensor = buffer.tensor(nbytes)
        assert (buffer.address, buffer.nbytes, tuple(tensor.shape)) == (address, nbytes, (nbytes,))
        assert buffer.reserved == max(-(-nbytes // 4096), 1) * 4096
        if nbytes:
            np.from_dlpack(tensor)[:] = 7
    assert "0 of 16777216 bytes" in repr(buffer)


def test_a_tensor_of_before_reads_0_behind_what_is_left() -> None:
    buffer = ReservedBuffer(1 << 20)
    before = np.from_dlpack(buffer.tensor(1 << 20))
    before[:] = 7
    buffer.tensor(4096)
    del buffer
    assert before[:4096].min() == 7 and before[4096:].max() == 0


def test_more_than_there_is_room_for_is_refused() -> None:
    buffer = ReservedBuffer(5000)
    assert tuple(buffer.tensor(5000).shape) == (5000,)
    with pytest.raises(BoundsError, match="5001 bytes do not fit into a buffer of at most 5000"):
        buffer.tensor(5001)
    for wrong in (-1, True, 1.5, "1KiB"):
        with pytest.raises(PoolUsageError, match="it must be a number of bytes"):
            buffer.tensor(wrong)  # type: ignore[arg-type]
    for size in (0, "x", None):
        with pytest.raises(PoolUsageError):
            ReservedBuffer(size)  # type: ignore[arg-type]
