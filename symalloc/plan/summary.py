"""What there is to say about a plan: its formulas, and bytes beside the floor at sample bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from symalloc.plan.floor import floor_bytes, live_sums
from symalloc.plan.model import Arena, Guard, Plan, Unplanned
from symalloc.size.expr import Expr

__all__ = ["SAMPLES", "Sample", "Summary", "summarise"]

SAMPLES = (1, 16, 128, 1024)  # extents at which a plan is shown, every symbol alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Bytes at one binding: of the arenas, of the floor, of all planned tensors without reuse, of TVM's
    storages.

    `tvm` is None where TVM's planner was not asked, or failed.
    """

    binding: Mapping[str, int]
    arena: int
    floor: int
    unshared: int
    tvm: int | None

    @property
    def ratio(self) -> float:
        """Arena over floor; 1 where nothing is live."""
        return self.arena / self.floor if self.floor else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One function's plan, to be shown."""

    function: str
    arenas: tuple[Arena, ...]
    guards: tuple[Guard, ...]
    unplanned: tuple[Unplanned, ...]
    samples: tuple[Sample, ...]

    @property
    def planned(self) -> int:
        """How many tensors lie in an arena."""
        return sum(len(arena.placements) for arena in self.arenas)


def summarise(plan: Plan, tvm: Sequence[Expr] | None = None) -> Summary:
    """The summary of `plan`; `tvm` holds the sizes of the storages of TVM's own plan, where they are
    known.
    """
    sizes = [p.buffer.size for a in plan.arenas for p in a.placements]
    symbols = sorted(frozenset().union(*(size.symbols for size in sizes)))
    bindings = [dict.fromkeys(symbols, extent) for extent in SAMPLES] if symbols else [{}]
    return Summary(
        function=plan.function,
        arenas=plan.arenas,
        guards=plan.guards,
        unplanned=plan.unplanned,
        samples=tuple(_sample(plan, sizes, tvm, binding) for binding in bindings) if sizes else (),
    )


def _sample(
    plan: Plan, sizes: Sequence[Expr], tvm: Sequence[Expr] | None, binding: Mapping[str, int]
) -> Sample:
    return Sample(
        binding=binding,
        arena=plan.arena_bytes(binding),
        floor=sum(floor_bytes(live_sums([p.buffer for p in a.placements]), binding) for a in plan.arenas),
        unshared=sum(size.evaluate(binding) for size in sizes),
        tvm=None if tvm is None else _total(tvm, binding),
    )


def _total(sizes: Sequence[Expr], binding: Mapping[str, int]) -> int | None:
    """The sum of `sizes`; None where one of them has a symbol that is no dimension at entry."""
    if any(not size.symbols <= binding.keys() for size in sizes):
        return None
    return sum(size.evaluate(binding) for size in sizes)
