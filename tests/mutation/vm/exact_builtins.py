"""The machine's builtins that reserve and place, with bounds to the byte.

Stock ones take a negative offset or extent for a large number, and crash on a storage that was killed.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import tvm
import tvm_ffi

__all__ = ["RefusedError", "itemsize", "make_exact"]

_STORAGE, _TENSOR = "vm.builtin.alloc_storage", "vm.builtin.alloc_tensor"


class RefusedError(Exception):
    """The machine is asked for what memory does not hold; the text begins with the kind of fault."""


@cache
def make_exact() -> None:
    """Replace the builtins in this process, for machines made from then on."""
    sizes: dict[int, int] = {}
    stock_storage, stock_tensor = map(tvm_ffi.get_global_func, (_STORAGE, _TENSOR))

    def alloc_storage(machine: Any, shape: Any, device: int, dtype: Any, scope: str) -> Any:
        if min(shape, default=0) < 0:
            raise RefusedError(f"negative-size: a storage of {list(shape)}")
        storage = stock_storage(machine, shape, device, dtype, scope)
        sizes[hash(storage)] = prod(shape) * itemsize(dtype)
        return storage

    def alloc_tensor(storage: Any, offset: int, shape: Any, dtype: Any) -> Any:
        if storage is None:
            raise RefusedError("use-after-kill: a tensor is placed on nothing")
        if min(shape, default=0) < 0:
            raise RefusedError(f"negative-extent: a tensor of {list(shape)}")
        if offset < 0:
            raise RefusedError(f"negative-offset: {offset}")
        end = offset + prod(shape) * itemsize(dtype)
        if end > sizes[hash(storage)]:
            raise RefusedError(f"exceeds: a tensor ends at {end} of {sizes[hash(storage)]}")
        return stock_tensor(storage, offset, shape, dtype)

    tvm.register_global_func(_STORAGE, alloc_storage, override=True)
    tvm.register_global_func(_TENSOR, alloc_tensor, override=True)


def itemsize(dtype: Any) -> int:
    """Bytes of an element."""
    kind = tvm.DataType(str(dtype))
    return int((kind.bits * kind.lanes + 7) // 8)
