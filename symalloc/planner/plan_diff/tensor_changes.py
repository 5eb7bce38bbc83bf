"""The planned tensors that one of two plans has and the other has not, or has otherwise."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from symalloc.planner.plan_diff.plan_record import TensorRecord

Pair: TypeAlias = tuple[TensorRecord, TensorRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorChanges:
    """Tensors of a plan against those of another: `resized` have another size, `moved` another offset only.

    A tensor with another name, but with the operator and the size of one that is gone, is the same.
    """

    new: tuple[TensorRecord, ...] = ()
    gone: tuple[TensorRecord, ...] = ()
    resized: tuple[Pair, ...] = ()
    moved: tuple[Pair, ...] = ()


_SAME: Sequence[Callable[[TensorRecord], Hashable]] = (
    lambda one: (one.callee, one.name, one.operator, one.size),
    lambda one: (one.callee, one.operator, one.size),
    lambda one: (one.callee, one.name, one.operator),
)
"""The ways in which tensors are known again: those before another go first."""


def compare_tensors(before: Sequence[TensorRecord], after: Sequence[TensorRecord]) -> TensorChanges:
    """Compare the tensors of two plans, both in the order of allocation."""
    gone, new = list(before), list(after)
    pairs: list[Pair] = []
    for key in _SAME:
        pairs += _paired(gone, new, key)
    return TensorChanges(
        new=tuple(new),
        gone=tuple(gone),
        resized=tuple(pair for pair in pairs if pair[0].size != pair[1].size),
        moved=tuple(p for p in pairs if p[0].size == p[1].size and p[0].offset != p[1].offset),
    )


def _paired(
    gone: list[TensorRecord], new: list[TensorRecord], key: Callable[[TensorRecord], Hashable]
) -> list[Pair]:
    """Take tensors with equal keys out of both lists, the first of one with the first of the other."""
    waiting: dict[Hashable, list[TensorRecord]] = {}
    for one in gone:
        waiting.setdefault(key(one), []).append(one)
    pairs = [(waiting[key(one)].pop(0), one) for one in new if waiting.get(key(one))]
    taken = {id(one) for pair in pairs for one in pair}
    for left in (gone, new):
        left[:] = [one for one in left if id(one) not in taken]
    return pairs
