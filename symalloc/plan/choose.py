"""Chooses a stacking: one packing per representative binding, judged at all of them by height over floor.

Every stacking is right for every binding; this only looks for one that is seldom much higher than it need be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from symalloc.plan.floor import floor_bytes, live_sums
from symalloc.plan.model import Buffer
from symalloc.plan.stacking import Stacking, stack
from symalloc.program.model import Function
from symalloc.prove.domain import INT64_MAX

__all__ = ["Choice", "choose", "representatives"]

EXTENTS = (192, 64, 16, 1024, 1, 4096)  # sequence models are mostly at the floor with the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A stacking, and the binding that it was made at."""

    stacking: Stacking
    binding: Mapping[str, int]


def representatives(function: Function, found: Iterable[Buffer]) -> tuple[Mapping[str, int], ...]:
    """Bindings to pack at: every symbol at one typical extent, within the declared bounds where there are
    any.
    """
    names = sorted(frozenset().union(*(b.size.symbols for b in found)))
    lower, upper = function.declared_lower, function.declared_upper
    bindings = (
        {name: max(min(extent, upper.get(name, INT64_MAX)), lower.get(name, 0)) for name in names}
        for extent in EXTENTS
    )
    return tuple({tuple(b.values()): b for b in bindings}.values())


def choose(
    buffers: Sequence[Buffer],
    neighbours: Mapping[int, frozenset[int]],
    bindings: Sequence[Mapping[str, int]],
) -> Choice:
    """The stacking with the least worst ratio to the floor over `bindings`, then the least mean, then the
    first.
    """
    sizes = [{b.id: b.size.evaluate(binding) for b in buffers} for binding in bindings]
    sums = live_sums(buffers)
    floors = [max(floor_bytes(sums, binding), 1) for binding in bindings]
    best: tuple[tuple[float, float], Choice] | None = None
    for binding in bindings:
        stacking = stack(buffers, neighbours, binding)
        ratios = [_height(stacking, at) / floor for at, floor in zip(sizes, floors, strict=True)]
        score = (max(ratios), sum(ratios))
        if best is None or score < best[0]:
            best = (score, Choice(stacking=stacking, binding=binding))
        if score[0] <= 1:
            break
    if best is None:
        raise ValueError("no binding to pack at")
    return best[1]


def _height(stacking: Stacking, sizes: Mapping[int, int]) -> int:
    """The height of `stacking` with buffers of `sizes` bytes."""
    tops: dict[int, int] = {}
    for current in stacking.order:
        tops[current] = max((tops[j] for j in stacking.below[current]), default=0) + sizes[current]
    return max(tops.values(), default=0)
