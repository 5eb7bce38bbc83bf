"""The floor: the largest sum of bytes that are live at one moment.  No plan of this order can do with
less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symalloc.plan.model import Buffer
from symalloc.size.expr import Expr

__all__ = ["floor_bytes", "live_sums"]


def live_sums(buffers: Sequence[Buffer]) -> tuple[Expr, ...]:
    """The sums of sizes over the sets of buffers that are live together; sets within another set are left
    out.
    """
    maximal: list[frozenset[int]] = []
    for candidate in sorted(_live_sets(buffers), key=len, reverse=True):
        if not any(candidate <= other for other in maximal):
            maximal.append(candidate)
    sizes = {b.id: b.size for b in buffers}
    sums = {sum((sizes[i] for i in sorted(ids)), start=Expr({})) for ids in maximal}
    return tuple(sorted(sums, key=lambda e: e.key))


def floor_bytes(sums: Sequence[Expr], binding: Mapping[str, int]) -> int:
    """The largest of `sums` (from `live_sums`) under `binding`."""
    return max((s.evaluate(binding) for s in sums), default=0)


def _live_sets(buffers: Sequence[Buffer]) -> set[frozenset[int]]:
    """The live sets at the positions where an interval begins: the set only shrinks until the next one
    begins.
    """
    begins: dict[int, list[tuple[int, int]]] = {}
    for buffer in buffers:
        for begin, end in buffer.live:
            begins.setdefault(begin, []).append((end, buffer.id))
    found: set[frozenset[int]] = set()
    active: list[tuple[int, int]] = []
    for position in sorted(begins):
        active = [(end, id_) for end, id_ in active if end > position] + begins[position]
        found.add(frozenset(id_ for end, id_ in active if end > position))
    return found
