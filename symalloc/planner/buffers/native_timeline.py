"""The bytes that tensors and arenas take over time, summed up by the native library: as in Python."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from symalloc.native.flat_lists import lists_of
from symalloc.native.native_functions import arena_functions
from symalloc.planner.buffers.call_columns import CallColumns
from symalloc.planner.buffers.native_columns import native_columns
from symalloc.planner.search.grid import Values

if TYPE_CHECKING:
    from symalloc.native.native_functions import TimelineObject


class NativeTimeline:
    """The functions of a timeline in the library; arrays that they return cannot be written to."""

    def __init__(self, made: TimelineObject, width: int) -> None:
        self.made, self._width = made, width

    def load(self, members: Sequence[int], first: int, last: int) -> Values:
        """As `CallTimeline.load`."""
        return self._rows(arena_functions.load(self.made, array("i", members).tobytes(), first, last))

    def height(self, members: Sequence[int]) -> Values:
        """As `CallTimeline.height`."""
        return np.frombuffer(arena_functions.height(self.made, array("i", members).tobytes()))

    def arenas(self, groups: Sequence[Sequence[int]], lent: Collection[int]) -> Values:
        """As `CallTimeline.taken`, less what is taken beside arenas."""
        flags = array("i", [i in lent for i in range(len(groups))]).tobytes()
        return self._rows(arena_functions.arenas(self.made, lists_of(groups), flags))

    def _rows(self, flat: bytes) -> Values:
        return np.frombuffer(flat).reshape(-1, self._width)


def native_timeline(columns: CallColumns, sizes: Values, *, exact: bool) -> NativeTimeline | None:
    """Return a timeline with a row of `sizes` for each tenant; None without the library, or without bindings.

    `exact`: no sum of them is rounded, whatever its order.
    """
    native = native_columns(columns)
    if native is None or not sizes.shape[1]:
        return None
    return NativeTimeline(
        arena_functions.timeline(native, sizes.tobytes(), sizes.shape[1], exact), sizes.shape[1]
    )
