"""Ranges of bytes or indices with symbolic ends: how much of one is left out by others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from symalloc.size.choice import maximum, select
from symalloc.size.condition import TRUE, Condition, conjunction, le
from symalloc.size.expr import Expr

_MOST_RANGES = 3
"""The number of ranges, none of them plainly next to another, up to which the order is told."""


class Range(NamedTuple):
    """The numbers from `begin` up to `end`, which is not one of them."""

    begin: Expr
    end: Expr


class WrittenRange(NamedTuple):
    """A range that is written where `condition` holds."""

    begin: Expr
    end: Expr
    condition: Condition = TRUE


def left_out(wanted: Range, written: Sequence[WrittenRange]) -> Expr | None:
    """The part of `wanted` from the first number that `written` lacks on; at most 0 where it lacks none.

    None where there are too many ranges in `written` to tell.
    """
    merged = _merged(written)
    if len(merged) > _MOST_RANGES:
        return None
    reached = wanted.begin
    for _ in merged:  # whatever their order: each pass reaches the end of one more
        for one in merged:
            reached = _after(one, reached)
        if len(merged) == 1:
            break
    return wanted.end - reached


def _after(one: WrittenRange, reached: Expr) -> Expr:
    """The end up to which all is written, where that was `reached` before."""
    if one.begin == reached:
        return select(one.condition, one.end, reached)
    joins = conjunction((one.condition, le(one.begin, reached)))
    return select(joins, maximum(reached, one.end), reached)


def _merged(ranges: Sequence[WrittenRange]) -> list[WrittenRange]:
    """The ranges, those joined where one ends exactly where another begins."""
    found = list(dict.fromkeys(ranges))
    while True:
        pair = next(((a, b) for a in found for b in found if _adjoin(a, b)), None)
        if pair is None:
            return found
        joined = WrittenRange(pair[0].begin, pair[1].end, pair[0].condition)
        found = [one for one in found if one not in pair] + [joined]


def _adjoin(one: WrittenRange, other: WrittenRange) -> bool:
    return one is not other and one.end == other.begin and one.condition == other.condition
