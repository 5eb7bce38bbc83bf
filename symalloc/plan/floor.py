"""The floor: the largest sum of bytes that are live at one moment.  No plan of this order can do with
less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from symalloc.plan.model import Buffer
from symalloc.size.expr import ZERO, Expr

__all__ = ["floor_bytes", "live_sums"]


def live_sums(buffers: Sequence[Buffer]) -> tuple[Expr, ...]:
    """The sums of sizes over the sets of buffers that are live together.

    A set within another, or with no more buffers of any size, is left out: sizes are >= 0.
    """
    distinct: dict[Expr, int] = {}
    kinds = {b.id: distinct.setdefault(b.size, len(distinct)) for b in buffers}
    sums = {_sum(counts, tuple(distinct)) for counts in _maximal(set(_live_counts(buffers, kinds)))}
    return tuple(sorted(sums, key=lambda e: e.key))


def floor_bytes(sums: Sequence[Expr], binding: Mapping[str, int]) -> int:
    """The largest of `sums` (from `live_sums`) under `binding`."""
    return max((s.evaluate(binding) for s in sums), default=0)


def _live_counts(buffers: Sequence[Buffer], kinds: Mapping[int, int]) -> Iterator[tuple[int, ...]]:
    """How many buffers of each kind are live, where an interval begins: the live set only shrinks until the
    next one begins.
    """
    begins: dict[int, list[tuple[int, int]]] = {}
    for buffer in buffers:
        for begin, end in buffer.live:
            if begin < end:
                begins.setdefault(begin, []).append((end, kinds[buffer.id]))
    active: list[tuple[int, int]] = []
    width = len(set(kinds.values()))
    for position in sorted(begins):
        active = [one for one in active if one[0] > position] + begins[position]
        counts = [0] * width
        for _, kind in active:
            counts[kind] += 1
        yield tuple(counts)


def _maximal(counts: set[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Those that no other reaches in every kind."""
    kept: list[tuple[int, ...]] = []
    for candidate in sorted(counts, key=lambda c: (-sum(c), c)):
        if not any(all(a <= b for a, b in zip(candidate, other, strict=True)) for other in kept):
            kept.append(candidate)
    return kept


def _sum(counts: Sequence[int], sizes: Sequence[Expr]) -> Expr:
    return sum((size * count for size, count in zip(sizes, counts, strict=True) if count), start=ZERO)
