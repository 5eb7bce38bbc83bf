"""Ranges of bytes or indices with symbolic ends: how much of one is left out by others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from symalloc.size.choice import maximum, select
from symalloc.size.condition import TRUE, Condition, conjunction, le
from symalloc.size.expr import Expr

_MOST_RANGES = 2
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
    joins = conjunction((one.condition, le(one.begin, reached)))
    return select(joins, maximum(reached, one.end), reached)


def _merged(ranges: Sequence[WrittenRange]) -> list[WrittenRange]:
    """The ranges, those joined where one begins exactly at a place that another is written up to.

    Any of them may be empty, its end before its begin: they reach as far as the one that reaches farthest.
    """
    found = [(one.begin, {one.end: None}, one.condition) for one in dict.fromkeys(ranges)]
    while True:
        pair = next(
            ((a, b) for a in found for b in found if a is not b and b[0] in a[1] and a[2] == b[2]), None
        )
        if pair is None:
            return [WrittenRange(begin, maximum(*ends), condition) for begin, ends, condition in found]
        one, other = pair
        found = [rest for rest in found if rest is not one and rest is not other]
        found.append((one[0], one[1] | other[1], one[2]))
