"""A buffer whose address never changes, and whose pages follow what is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tvm_ffi

from symalloc.errors import require_bytes, shown
from symalloc.pool.native_pool import MemoryBytes, NativePool
from symalloc.pool.pool_errors import BoundsError, PoolUsageError, checked

if TYPE_CHECKING:
    from symalloc.native.native_functions import NativeTensor

PAGE = 4096


class ReservedBuffer:
    """Addresses for `most` bytes, and pages for as many as were asked for last, for one call at a time.

        buffer = symalloc.ReservedBuffer("1GiB")
        result = machine["main"](x, buffer.tensor(machine["main_bytes"](shape)))

    It is a pool with one block.  Tensors of it keep the addresses; one of before that is larger than the last
    reads 0 past its end.  Raises PoolUsageError for what is no number of bytes, OutOfMemoryError where there
    is no address space.
    """

    def __init__(self, most: float | str) -> None:
        self.most = checked(require_bytes, "most", most, least=1)
        self.nbytes = 0
        room = -(-self.most // PAGE) * PAGE
        self._pool = NativePool(
            capacity=room, limit=room, page=PAGE, soft_limit=None, bin_capacity=0, huge=False
        )
        self._block = self._pool.alloc(1)
        self.address = self._block.pointer

    def __repr__(self) -> str:
        return f"<ReservedBuffer: {self.nbytes} of {self.most} bytes at {self.address:#x}>"

    @property
    def reserved(self) -> int:
        """The bytes of its pages."""
        return self._pool.reserved

    def tensor(self, nbytes: int) -> NativeTensor:
        """A tensor of `nbytes` bytes, uint8 of one axis, at the address; pages behind it are given back.

        Raises BoundsError for more bytes than there are addresses for.
        """
        if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
            raise PoolUsageError(f"nbytes is {shown(nbytes)}; it must be a number of bytes")
        if nbytes > self.most:
            raise BoundsError(f"{nbytes} bytes do not fit into a buffer of at most {self.most}")
        if nbytes != self.nbytes:
            self._block.free()
            self._block = self._pool.alloc(max(nbytes, 1))
            if nbytes < self.nbytes:
                self._pool.trim()
            self.nbytes = nbytes
        made: NativeTensor = tvm_ffi.from_dlpack(np.asarray(MemoryBytes(self.address, nbytes, self)))
        return made
