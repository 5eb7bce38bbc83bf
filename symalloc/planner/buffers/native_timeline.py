"""The bytes that tensors and arenas take over time, summed up by the native library: as in Python."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from symalloc.native.flat_lists import lists_of, shared
from symalloc.native.native_functions import arena_functions
from symalloc.planner.buffers.call_columns import CallColumns
from symalloc.planner.buffers.native_columns import native_columns
from symalloc.planner.grid import Values

if TYPE_CHECKING:
    from symalloc.native.native_functions import TimelineObject


class NativeTimeline:
    """The functions of a timeline in the library.

    The columns of path i are those from offsets[i] to offsets[i + 1]; `width` is the number of bindings.
    """

    def __init__(self, made: TimelineObject, offsets: Sequence[int], width: int) -> None:
        self.made, self._offsets, self._width = made, offsets, width

    def load(self, members: Sequence[int], first: int, last: int) -> Values:
        """As `CallTimeline.load`."""
        found = np.empty((last - first, self._width))
        arena_functions.load(self.made, array("i", members).tobytes(), first, last, shared(found))
        return found

    def height(self, members: Sequence[int]) -> Values:
        """As `CallTimeline.height`."""
        return np.frombuffer(arena_functions.height(self.made, array("i", members).tobytes()))

    def arenas(self, groups: Sequence[Sequence[int]], lent: Collection[int]) -> Values:
        """As `CallTimeline.taken`, less what is taken beside arenas."""
        found = np.empty((self._offsets[-1], self._width))
        arena_functions.arenas(self.made, lists_of(groups), _flags(groups, lent), shared(found))
        return found

    def peaks(self, groups: Sequence[Sequence[int]], lent: Collection[int]) -> Values:
        """The most of the same on each path; only where sums are exact."""
        found = np.empty((len(self._offsets) - 1, self._width))
        bounds = array("i", self._offsets).tobytes()
        arena_functions.peaks(self.made, lists_of(groups), _flags(groups, lent), bounds, shared(found))
        return found


def _flags(groups: Sequence[Sequence[int]], lent: Collection[int]) -> bytes:
    return array("i", [i in lent for i in range(len(groups))]).tobytes()


def native_timeline(columns: CallColumns, sizes: Values, *, exact: bool) -> NativeTimeline | None:
    """Return a timeline with a row of `sizes` for each tenant; None without the library, or without bindings.

    `exact`: no sum of them is rounded, whatever its order.
    """
    native = native_columns(columns)
    if native is None or not sizes.shape[1]:
        return None
    return NativeTimeline(
        arena_functions.timeline(native, shared(sizes), exact), columns.offsets, sizes.shape[1]
    )
