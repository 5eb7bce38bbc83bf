"""A storage: buffers that are never live at once, each at its start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from symalloc.planner.layout.dominance import PROVER_BUDGET, Dominance
from symalloc.planner.layout.pruning import prune
from symalloc.planner.memory_plan import Arena, Buffer, Placement
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.choice import maximum
from symalloc.size.expr import ZERO


def storage(
    buffers: Sequence[Buffer], domain: Domain, prover: Prover, *, prover_budget: int = PROVER_BUDGET
) -> Arena:
    """Return an arena with all of `buffers` at offset 0, as large as the largest of them at each binding.

    `prover_budget` is that of `assemble`.
    """
    names = frozenset().union(*(b.size.symbols for b in buffers))
    dominance = Dominance(domain, prover, names, prover_budget=prover_budget)
    size = maximum(*prune((b.size for b in buffers), dominance))
    return replace(Arena.of(size, (Placement(b, ZERO) for b in buffers)), raised=dominance.raised)
