"""Where watermarks lie, and how their callbacks are called."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from fractions import Fraction

from symalloc.pool.errors import PoolUsageError

__all__ = ["OomCallback", "WatchCallback", "high_marks", "low_marks", "said_aloud"]

WatchCallback = Callable[[int], object]
OomCallback = Callable[[int, int, str], bool]


def high_marks(at: int | float | Fraction, rearm: int | None, limit: int | None) -> tuple[int, int]:
    """The mark of a high watch and what rearms it, in bytes; nine tenths of the mark unless it is said.

    Raises PoolUsageError.
    """
    mark = _bytes(at, limit)
    below = mark * 9 // 10 if rearm is None else rearm
    if not 0 <= below < mark:
        raise PoolUsageError(f"a high watermark of {mark} bytes rearms below itself, not at {below}")
    return mark, below


def low_marks(at: int | float | Fraction, rearm: int | None, limit: int | None) -> tuple[int, int]:
    """The mark of a low watch and what rearms it, in bytes; eleven tenths of the mark unless it is said.

    Raises PoolUsageError.
    """
    mark = _bytes(at, limit)
    above = mark + max(mark // 10, 1) if rearm is None else rearm
    if above <= mark:
        raise PoolUsageError(f"a low watermark of {mark} bytes rearms above itself, not at {above}")
    return mark, above


def said_aloud(callback: WatchCallback) -> WatchCallback:
    """`callback`; what it raises is said on the standard error stream, and goes no further."""

    def call(in_use: int) -> None:
        try:
            callback(in_use)
        except Exception:
            print("symalloc: a callback at a watermark failed; the pool goes on:", file=sys.stderr)
            traceback.print_exc()

    return call


def _bytes(at: int | float | Fraction, limit: int | None) -> int:
    if isinstance(at, int):
        if at < 0:
            raise PoolUsageError(f"a watermark must not be negative, as {at} is")
        return at
    if not 0 <= at <= 1:
        raise PoolUsageError(f"a watermark is bytes (an int) or a share of the limit from 0 to 1, not {at}")
    if limit is None:
        raise PoolUsageError("a watermark that is a share of the limit needs a pool with a limit")
    return int(at * limit)
