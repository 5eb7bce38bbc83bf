"""The floor: the largest sum of bytes that are live at one position.  No plan of this order can do with
less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from symalloc.planner.interference import live_sets
from symalloc.planner.memory_plan import Buffer
from symalloc.size.expr import ZERO, Expr


def live_sums(buffers: Sequence[Buffer]) -> tuple[Expr, ...]:
    """Return the sums of sizes over the sets of buffers that are live together.

    A set within another, or with no more buffers of any size, is left out: sizes are >= 0.
    """
    distinct: dict[Expr, int] = {}
    kinds = [distinct.setdefault(b.size, len(distinct)) for b in buffers]
    sizes = tuple(distinct)
    counts = (_counts(kinds[i] for i in together) for together in live_sets(b.live for b in buffers))
    sums = {sum((sizes[kind] * n for kind, n in c.items()), ZERO) for c in _maximal(counts)}
    return tuple(sorted(sums, key=lambda e: e.key))


def floor_bytes(sums: Sequence[Expr], binding: Mapping[str, int]) -> int:
    """Return the largest of `sums` (from `live_sums`) under `binding`."""
    return max((s.evaluate(binding) for s in sums), default=0)


def _counts(kinds: Iterable[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for kind in kinds:
        found[kind] = found.get(kind, 0) + 1
    return found


def _maximal(found: Iterable[dict[int, int]]) -> list[dict[int, int]]:
    """Drop the counts that another reaches in every kind, and repetitions."""
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
