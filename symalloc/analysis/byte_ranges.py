"""Ranges of bytes with symbolic ends: how much of one is left out by others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from symalloc.size.choice import maximum, select
from symalloc.size.condition import le
from symalloc.size.expr import Expr

_MOST_RANGES = 3
"""The number of ranges, none of them plainly next to another, up to which the order is told."""


class ByteRange(NamedTuple):
    """The bytes from `begin` up to `end`, which is not one of them."""

    begin: Expr
    end: Expr


def left_out(wanted: ByteRange, written: Sequence[ByteRange]) -> Expr | None:
    """The bytes of `wanted` from the first that `written` lacks on; at most 0 where it lacks none.

    None where there are too many ranges in `written` to tell.
    """
    merged = _merged(written)
    if len(merged) > _MOST_RANGES:
        return None
    reached = wanted.begin
    for _ in merged:  # whatever their order: each pass reaches the end of one more
        for one in merged:
            reached = select(le(one.begin, reached), maximum(reached, one.end), reached)
        if len(merged) == 1:
            break
    return wanted.end - reached


def _merged(ranges: Sequence[ByteRange]) -> list[ByteRange]:
    """The ranges, those joined where one ends exactly where another begins."""
    found = list(dict.fromkeys(ranges))
    while True:
        pair = next(((a, b) for a in found for b in found if a is not b and a.end == b.begin), None)
        if pair is None:
            return found
        joined = ByteRange(pair[0].begin, pair[1].end)
        found = [one for one in found if one not in pair] + [joined]
