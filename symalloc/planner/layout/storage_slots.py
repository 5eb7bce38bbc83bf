"""The "storages" flavour: buffers share whole storages, each at offset 0 of one.

Every slot becomes an arena of its own, as large as the largest buffer in it at each binding.  Buffers are
taken largest first at a few bindings, each into the slot that grows least by it; a slot is opened where that
costs no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from symalloc.planner.interference import interference
from symalloc.planner.layout.dominance import PROVER_BUDGET, Dominance, samples
from symalloc.planner.layout.pruning import prune
from symalloc.planner.memory_plan import Arena, Buffer, Placement
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.choice import maximum
from symalloc.size.expr import ZERO


def storage_arenas(
    buffers: Sequence[Buffer], domain: Domain, prover: Prover, *, prover_budget: int = PROVER_BUDGET
) -> tuple[Arena, ...]:
    """Return an arena for each storage of `buffers`, which share device, scope and point of reservation.

    `prover_budget` is that of `assemble`.
    """
    names = frozenset().union(*(b.size.symbols for b in buffers))
    bindings = samples(domain, sorted(names))
    shares = _shares([[b.size.evaluate(binding) for binding in bindings] for b in buffers])
    neighbours = interference(buffers)
    found: list[_StorageSlot] = []
    for i in sorted(range(len(buffers)), key=lambda i: (-sum(shares[i]), buffers[i].live, i)):
        share = shares[i]
        free = [slot for slot in found if slot.members.isdisjoint(neighbours[i])]
        best = min(free, key=lambda slot: slot.growth(share), default=None)
        if best is None or best.growth(share) >= sum(share) > 0:
            best = _StorageSlot(share=[0.0] * len(share))
            found.append(best)
        best.members.add(i)
        best.share = [max(a, b) for a, b in zip(best.share, share, strict=True)]
    dominance = Dominance(domain, prover, names, prover_budget=prover_budget)
    return tuple(_arena([buffers[i] for i in sorted(slot.members)], dominance) for slot in found)


@dataclass(slots=True, kw_only=True)
class _StorageSlot:
    """The buffers in one storage, and its size at each of the bindings, as a share of the largest buffer
    there.
    """

    share: list[float]
    members: set[int] = field(default_factory=set)

    def growth(self, share: Sequence[float]) -> float:
        """Return how much it grows where a buffer of `share` joins, all bindings together."""
        return sum(max(new - old, 0.0) for new, old in zip(share, self.share, strict=True))


def _shares(sizes: Sequence[Sequence[int]]) -> list[list[float]]:
    """Return sizes at each binding over the largest one there."""
    largest = [max(values) or 1 for values in zip(*sizes, strict=True)]
    return [[size / most for size, most in zip(row, largest, strict=True)] for row in sizes]


def _arena(members: Sequence[Buffer], dominance: Dominance) -> Arena:
    size = maximum(*prune((b.size for b in members), dominance))
    return Arena.of(size, (Placement(b, ZERO) for b in members))
