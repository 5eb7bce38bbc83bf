"""The native functions by name: `pool_functions.trim(pool)`.  The stub beside this file has their types."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, chain

import tvm_ffi

from symalloc.native.library import load_library


class _Functions:
    """The global functions of tvm-ffi under one prefix, each looked up once.

    The first loads the library, or raises NativeMissingError.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> object:
        load_library()
        function = tvm_ffi.get_global_func(self._prefix + name)
        setattr(self, name, function)
        return function


pool_functions = _Functions("symalloc.pool.")
packer_functions = _Functions("symalloc.packer.")
array_functions = _Functions("symalloc.array.")


def lists_of(lists: Sequence[Sequence[int]]) -> bytes:
    """Return the number of `lists`, where each starts, where the last ends, and all items in turn: int32."""
    starts = accumulate(map(len, lists), initial=0)
    return array("i", chain((len(lists),), starts, chain.from_iterable(lists))).tobytes()
