"""One model at one binding: the same results as the unplanned module, and what each plan takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from symalloc.planner.buffers.call_bytes import SHARE, SPARE
from tests.models.measure import Usage
from tests.models.planned.call import Call, calls, difference, needed
from tests.models.planned.case import Binding
from tests.models.planned.variants import Machine, Variants

__all__ = ["Row", "Worst", "compare", "within_limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """The largest figures over all paths that the conditions of a call may take; see `Usage`."""

    allocations: int
    planned: int
    total: int

    @classmethod
    def of(cls, usages: Iterable[Usage]) -> Worst:
        """The largest of each."""
        figures = [(u.allocations, u.planned, u.total) for u in usages]
        allocations, planned, total = map(max, zip(*figures, strict=True))
        return cls(allocations=allocations, planned=planned, total=total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was measured at `binding`.

    `difference` says where an output or an argument differs from the unplanned module's; None where none
    does.  `floor` is the largest over all paths, in bytes.  `theirs` is TVM's plan without upper bounds,
    `bounded` the one with those that the module declares; None where it cannot be run (bounded plans not
    beyond their bound).
    """

    case: str
    binding: Binding
    beyond: bool
    difference: str | None
    floor: int
    ours: Worst
    theirs: Worst | None
    bounded: Worst | None

    @property
    def ratio(self) -> float:
        """Our peak over the floor; 1 where nothing has to be held."""
        return self.ours.planned / self.floor if self.floor else 1.0

    @property
    def against(self) -> tuple[float, float] | None:
        """Our peaks, without and with outputs, over the smaller of TVM's; None where TVM's cannot be run."""
        rivals = [w for w in (self.theirs, self.bounded) if w is not None]
        if not rivals:
            return None
        planned, total = min(w.planned for w in rivals), min(w.total for w in rivals)
        return _ratio(self.ours.planned, planned), _ratio(self.ours.total, total)


def _ratio(ours: int, theirs: int) -> float:
    return ours / theirs if theirs else float("inf") if ours else 1.0


def compare(variants: Variants, binding: Binding, *, theirs: bool = True, seed: int = 0) -> Row:
    """Runs every path at `binding` on all machines; TVM's plans only with `theirs`.

    Beyond what the module declares our plan runs without checks at entry.
    """
    case = variants.case
    ours = variants.unguarded if case.beyond(binding) else variants.ours
    paths = calls(variants, binding, seed)
    expected = [call.on(variants.unplanned) for call in paths]
    found = [call.on(ours) for call in paths]
    differences = (difference(a, b) for a, b in zip(found, expected, strict=True))
    free, bounded = variants.theirs if theirs and not case.theirs else (None, None)
    return Row(
        case=case.name,
        binding=binding,
        beyond=case.beyond(binding),
        difference=next(filter(None, differences), None),
        floor=max(floor.planned for floor in needed(paths)),
        ours=Worst.of(f.usage for f in found),
        theirs=_worst(free, paths),
        bounded=None if case.beyond(binding) else _worst(bounded, paths),
    )


def _worst(machine: Machine | None, paths: Iterable[Call]) -> Worst | None:
    return None if machine is None else Worst.of(call.on(machine).usage for call in paths)


def within_limit(unplanned: int) -> float:
    """The bytes that a planned call may hold where the unplanned one holds `unplanned`."""
    return max((1 + SHARE) * unplanned, unplanned + SPARE)
