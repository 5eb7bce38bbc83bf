"""The floor: the largest sum of bytes that are live at one moment.  No plan of this order can do with
less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from symalloc.planner.memory_plan import Buffer
from symalloc.size.expr import ZERO, Expr


def live_sums(buffers: Sequence[Buffer]) -> tuple[Expr, ...]:
    """The sums of sizes over the sets of buffers that are live together.

    A set within another, or with no more buffers of any size, is left out: sizes are >= 0.
    """
    distinct: dict[Expr, int] = {}
    kinds = {b.id: distinct.setdefault(b.size, len(distinct)) for b in buffers}
    sizes = tuple(distinct)
    sums = {sum((sizes[k] * n for k, n in c.items()), ZERO) for c in _maximal(_live_counts(buffers, kinds))}
    return tuple(sorted(sums, key=lambda e: e.key))


def floor_bytes(sums: Sequence[Expr], binding: Mapping[str, int]) -> int:
    """The largest of `sums` (from `live_sums`) under `binding`."""
    return max((s.evaluate(binding) for s in sums), default=0)


def _live_counts(buffers: Sequence[Buffer], kinds: Mapping[int, int]) -> Iterator[dict[int, int]]:
    """How many buffers of each kind are live, where an interval begins: the live set only shrinks until the
    next one begins.
    """
    begins: dict[int, list[tuple[int, int]]] = {}
    for buffer in buffers:
        for begin, end in buffer.live:
            if begin < end:
                begins.setdefault(begin, []).append((end, kinds[buffer.id]))
    active: list[tuple[int, int]] = []
    for position in sorted(begins):
        active = [one for one in active if one[0] > position] + begins[position]
        counts: dict[int, int] = {}
        for _, kind in active:
            counts[kind] = counts.get(kind, 0) + 1
        yield counts


def _maximal(found: Iterable[dict[int, int]]) -> list[dict[int, int]]:
    """Those that no other reaches in every kind, each once."""
    unique = {frozenset(counts.items()): counts for counts in found}
    kept: list[dict[int, int]] = []
    holding: dict[int, list[dict[int, int]]] = {}  # those of `kept` that have some of a kind
    for counts in sorted(unique.values(), key=lambda c: -sum(c.values())):
        others = min((holding.get(kind, []) for kind in counts), key=len)
        if not any(all(other.get(kind, 0) >= n for kind, n in counts.items()) for other in others):
            kept.append(counts)
            for kind in counts:
                holding.setdefault(kind, []).append(counts)
    return kept
