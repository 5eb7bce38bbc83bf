"""The "storages" flavour: buffers share whole storages, each at offset 0 of one.

Every slot becomes an arena of its own, as large as the largest buffer in it at each binding.  Buffers are
taken largest first at a few bindings, each into the slot that grows least by it; a slot is opened where that
costs no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from symalloc.planner.layout.dominance import PATIENCE, Dominance, samples
from symalloc.planner.layout.offsets import prune
from symalloc.planner.memory_plan import Arena, Buffer, Placement
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.choice import maximum
from symalloc.size.expr import ZERO


def storage_arenas(
    buffers: Sequence[Buffer],
    neighbours: Mapping[int, frozenset[int]],
    domain: Domain,
    prover: Prover,
    *,
    patience: int = PATIENCE,
) -> tuple[Arena, ...]:
    """An arena for each slot of `buffers`, which share device, scope and the moment of reservation.

    `patience` is that of `assemble`.
    """
    names = frozenset().union(*(b.size.symbols for b in buffers))
    bindings = samples(domain, sorted(names))
    shares = _shares([[b.size.evaluate(binding) for binding in bindings] for b in buffers])
    wanted = sorted(zip(buffers, shares, strict=True), key=lambda b: (-sum(b[1]), b[0].live, b[0].id))
    found: list[_StorageSlot] = []
    for buffer, share in wanted:
        free = [slot for slot in found if slot.ids.isdisjoint(neighbours[buffer.id])]
        best = min(free, key=lambda slot: slot.growth(share), default=None)
        if best is None or best.growth(share) >= sum(share) > 0:
            best = _StorageSlot(share=[0.0] * len(share))
            found.append(best)
        best.add(buffer, share)
    dominance = Dominance(domain, prover, names, patience=patience)
    return tuple(_arena(slot, dominance) for slot in found)


@dataclass(slots=True, kw_only=True)
class _StorageSlot:
    """The buffers in it, and its size at each of the bindings, as a share of the largest buffer there."""

    share: list[float]
    members: list[Buffer] = field(default_factory=list)
    ids: set[int] = field(default_factory=set)

    def growth(self, share: Sequence[float]) -> float:
        """What it grows by where a buffer of `share` joins, all bindings together."""
        return sum(max(new - old, 0.0) for new, old in zip(share, self.share, strict=True))

    def add(self, buffer: Buffer, share: Sequence[float]) -> None:
        self.members.append(buffer)
        self.ids.add(buffer.id)
        self.share = [max(a, b) for a, b in zip(self.share, share, strict=True)]


def _shares(sizes: Sequence[Sequence[int]]) -> list[list[float]]:
    """Sizes at each binding over the largest one there."""
    largest = [max(values) or 1 for values in zip(*sizes, strict=True)]
    return [[size / most for size, most in zip(row, largest, strict=True)] for row in sizes]


def _arena(slot: _StorageSlot, dominance: Dominance) -> Arena:
    home = slot.members[0]
    return Arena(
        device=home.device,
        scope=home.scope,
        after=home.after,
        size=maximum(*prune((b.size for b in slot.members), dominance)),
        placements=tuple(Placement(buffer=b, offset=ZERO) for b in sorted(slot.members, key=lambda b: b.id)),
    )
