"""Stackings made into expressions: an offset for each buffer and the size of the arena.

Several stackings (regimes) become choices: each holds where its condition does and none before it did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from symalloc.planner.layout.dominance import PATIENCE, Dominance
from symalloc.planner.layout.merge_offsets import merge_offsets
from symalloc.planner.layout.offsets import arena_size, offsets
from symalloc.planner.memory_plan import Buffer, Placement
from symalloc.planner.search.stacking import Stacking
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.choice import maximum, select
from symalloc.size.condition import Condition, negate
from symalloc.size.expr import Expr

Regimes: TypeAlias = Sequence[tuple[Condition | None, Stacking]]  # the last one has no condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The size of an arena and where each buffer lies in it, in bytes."""

    size: Expr
    placements: tuple[Placement, ...]

    @property
    def distinct(self) -> int:
        """How many offset expressions there are to evaluate; constants and repetitions do not count."""
        return len({p.offset for p in self.placements if p.offset.as_constant is None})


def assemble(
    buffers: Sequence[Buffer], regimes: Regimes, domain: Domain, prover: Prover, *, patience: int = PATIENCE
) -> Layout:
    """The layout of `buffers` by `regimes` over `domain`.

    With a `patience` of 0 the prover is not asked what dominates what: offsets are longer, and what has to be
    proved of them can be seen.  Raises ValueError where the regimes leave a hole: the last one must stand
    without a condition.
    """
    if not regimes or regimes[-1][0] is not None:
        raise ValueError("the last regime must hold for every shape that is left")
    symbols = frozenset().union(*(b.size.symbols for b in buffers))
    layouts = [
        _layout(buffers, stacking, Dominance(case, prover, symbols, patience=patience))
        for stacking, case in _cases(regimes, domain)
    ]
    size, placed = layouts[-1]
    for (condition, _), (chosen_size, chosen) in zip(regimes[-2::-1], layouts[-2::-1], strict=True):
        assert condition is not None
        size = select(condition, chosen_size, size)
        placed = [select(condition, a, b) for a, b in zip(chosen, placed, strict=True)]
    placements = tuple(Placement(buffer=b, offset=o) for b, o in zip(buffers, placed, strict=True))
    return Layout(size=size, placements=placements)


def _cases(regimes: Regimes, domain: Domain) -> Iterator[tuple[Stacking, Domain]]:
    """Each stacking with the part of `domain` that is left to it."""
    for condition, stacking in regimes:
        if condition is None:
            yield stacking, domain
            return
        yield stacking, domain.assuming((condition,))
        domain = domain.assuming((negate(condition),))


def _layout(buffers: Sequence[Buffer], stacking: Stacking, dominance: Dominance) -> tuple[Expr, list[Expr]]:
    """The arena's size, and the offsets in the order of `buffers`; equal offsets are one object."""
    placed = offsets(buffers, stacking, dominance)
    size = arena_size(buffers, placed, dominance)
    unified = merge_offsets(buffers, stacking, placed, size, dominance)
    built = {alternatives: maximum(*alternatives) for alternatives in set(unified.values())}
    return maximum(*size), [built[unified[b.id]] for b in buffers]
