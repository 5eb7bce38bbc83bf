"""Lists of numbers for the native library, one after the other, and arrays that it shares."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np
import tvm_ffi
from numpy.typing import NDArray

if TYPE_CHECKING:
    from symalloc.native.native_functions import NativeTensor


def lists_of(lists: Sequence[Sequence[int]]) -> bytes:
    """Return the number of `lists`, where each starts, where the last ends, and all items in turn: int32."""
    starts = accumulate(map(len, lists), initial=0)
    return array("i", chain((len(lists),), starts, chain.from_iterable(lists))).tobytes()


def records_of(lists: Sequence[Sequence[Sequence[int]]], width: int) -> bytes:
    """Return the same for lists of records of so many numbers each, in the place of a record its numbers."""
    starts = accumulate((width * len(records) for records in lists), initial=0)
    items = chain.from_iterable(chain.from_iterable(lists))
    return array("i", chain((len(lists),), starts, items)).tobytes()


def shared(values: NDArray[np.float64]) -> NativeTensor:
    """Return an array for the library to read or fill; a copy of one that is in pieces.

    Raises BufferError for one that cannot be written to.
    """
    found: NativeTensor = tvm_ffi.from_dlpack(np.ascontiguousarray(values))
    return found
