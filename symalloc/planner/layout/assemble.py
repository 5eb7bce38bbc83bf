"""Stackings made into expressions: the arena's size and an offset for each buffer.

Several stackings (regimes) become choices: each holds where its condition does and none before it did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from symalloc.planner.layout.dominance import PROVER_BUDGET, Dominance
from symalloc.planner.layout.merge_offsets import merge_offsets
from symalloc.planner.layout.offsets import arena_size, offsets
from symalloc.planner.memory_plan import Arena, Buffer, Placement
from symalloc.planner.plan_budget import PlanBudget
from symalloc.planner.search.stacking import Stacking
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.choice import maximum, select
from symalloc.size.condition import Condition, negate
from symalloc.size.expr import ZERO, Expr

MOST_COMPARED, COMPARED_EACH = 400, 0.25  # differences for a stacking, and more for each of its buffers

Regimes: TypeAlias = Sequence[tuple[Condition | None, Stacking]]  # the last one has no condition


def assemble(
    buffers: Sequence[Buffer],
    regimes: Regimes,
    domain: Domain,
    prover: Prover,
    *,
    prover_budget: int = PROVER_BUDGET,
    budget: PlanBudget | None = None,
) -> Arena:
    """Return the arena of `buffers` stacked by `regimes`, over `domain`; there is at least one buffer.

    With a `prover_budget` of 0 the prover is not asked what dominates what: offsets are longer, and what has
    to be proved of them can be seen.  Raises ValueError where the regimes leave a hole: the last one
    must stand without a condition; and FormulasTooLongError, also where `budget` is exhausted.
    """
    if not regimes or regimes[-1][0] is not None:
        raise ValueError("the last regime must hold for every shape that is left")
    if len(buffers) == 1:
        return Arena.of(buffers[0].size, [Placement(buffers[0], ZERO)])
    symbols = frozenset().union(*(b.size.symbols for b in buffers))
    layouts, raised = [], 0
    for stacking, case in _cases(regimes, domain):
        most = MOST_COMPARED + int(COMPARED_EACH * len(buffers))
        dominance = Dominance(case, prover, symbols, prover_budget=prover_budget, most=most, budget=budget)
        layouts.append(_layout(buffers, stacking, dominance))
        raised += dominance.raised
    size, placed = layouts[-1]
    for (condition, _), (chosen_size, chosen) in zip(regimes[-2::-1], layouts[-2::-1], strict=True):
        assert condition is not None
        size = select(condition, chosen_size, size)
        placed = [select(condition, a, b) for a, b in zip(chosen, placed, strict=True)]
    return replace(Arena.of(size, map(Placement, buffers, placed)), raised=raised)


def _cases(regimes: Regimes, domain: Domain) -> Iterator[tuple[Stacking, Domain]]:
    """Yield each stacking with the part of `domain` that is left to it."""
    for condition, stacking in regimes:
        if condition is None:
            yield stacking, domain
            return
        yield stacking, domain.assuming((condition,))
        domain = domain.assuming((negate(condition),))


def _layout(buffers: Sequence[Buffer], stacking: Stacking, dominance: Dominance) -> tuple[Expr, list[Expr]]:
    """Return the arena's size, and the offsets in the order of `buffers`; equal offsets are one object."""
    placed = offsets(buffers, stacking, dominance)
    size = arena_size(buffers, stacking, placed, dominance)
    merged = merge_offsets(buffers, stacking, placed, size, dominance)
    built = {alternatives: maximum(*alternatives) for alternatives in dict.fromkeys(merged)}
    return maximum(*size), [built[alternatives] for alternatives in merged]
