"""Watermarks of the bytes in use: where they lie, and how their callbacks are called."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from symalloc.arguments import shown
from symalloc.native.native_functions import pool_functions
from symalloc.pool.core.pool_errors import PoolUsageError
from symalloc.pool.core.pool_options import MOST

if TYPE_CHECKING:
    from symalloc.native.native_functions import PoolObject
    from symalloc.pool.core.callback_table import CallbackTable

WatermarkCallback = Callable[[int], object]
OomCallback = Callable[[int, int, str], bool]
Level = int | float | Fraction  # bytes (an int), or a share of the limit from 0 to 1


class Watermark:
    """A callback at a number of bytes in use."""

    __slots__ = ("_callbacks", "_key", "_number", "_pool")

    def __init__(self, pool: PoolObject, number: int, callbacks: CallbackTable, key: int) -> None:
        self._pool, self._number = pool, number
        self._callbacks, self._key = callbacks, key

    def cancel(self) -> None:
        """Cancel the callback.  A concurrent call may still be running when this returns."""
        pool_functions.remove_watermark(self._pool, self._number)
        self._callbacks.remove(self._key)


def watermark_bounds(high: bool, at: Level, rearm: int | None, limit: int | None) -> tuple[int, int]:
    """A watermark and the level that rearms it, in bytes; by default nine tenths of a high mark, eleven
    tenths of a low one.  Raises PoolUsageError.
    """
    mark = _bytes(at, limit)
    if rearm is None:
        level = mark * 9 // 10 if high else mark + max(mark // 10, 1)
    else:
        level = checked_count("the level that rearms a watermark", rearm)
    if not (0 <= level < mark if high else level > mark):
        kind, side = ("high", "below") if high else ("low", "above")
        raise PoolUsageError(f"a {kind} watermark of {mark} bytes rearms {side} itself, not at {level}")
    return mark, level


def printing_errors(callback: WatermarkCallback) -> WatermarkCallback:
    """`callback`, but its exceptions are printed to the standard error stream and go no further."""

    def call(in_use: int) -> None:
        try:
            callback(in_use)
        except Exception:
            print("symalloc: a callback at a watermark failed; the pool goes on:", file=sys.stderr)
            traceback.print_exc()

    return call


def checked_callback(callback: object) -> None:
    """Raise PoolUsageError where `callback` cannot be called."""
    if not callable(callback):
        raise PoolUsageError(f"a callback is a function, not {shown(callback)}")


def checked_count(name: str, value: object) -> int:
    """`value`, an integer below 2^62; raises PoolUsageError for what is none, calling it `name`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise PoolUsageError(f"{name} is an integer, not {shown(value)}")
    if abs(value) > MOST:
        raise PoolUsageError(f"{name} is at most 2^62, not {shown(value)}")
    return value


def _bytes(at: Level, limit: int | None) -> int:
    given: object = at
    if isinstance(given, bool) or not isinstance(given, int | float | Fraction):
        raise PoolUsageError(f"a watermark is bytes (an int) or a share of the limit, not {shown(given)}")
    if isinstance(at, int):
        if checked_count("a watermark", at) < 0:
            raise PoolUsageError(f"a watermark must not be negative, as {at} is")
        return at
    if not 0 <= at <= 1:
        raise PoolUsageError(
            f"a watermark is bytes (an int) or a share of the limit from 0 to 1, not {shown(at)}"
        )
    if limit is None:
        raise PoolUsageError("a watermark that is a share of the limit needs a pool with a limit")
    return int(at * limit)
