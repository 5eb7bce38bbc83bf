"""The faults of a plan, and the refusal that names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from symalloc.size.condition import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFault:
    """One thing that is wrong with a plan, or could not be proved.

    `buffers` names the one or two buffers concerned; `binding` is a binding that breaks the plan, None
    where there is no such binding at hand because the proof, not the plan, fell short.
    """

    problem: str
    buffers: tuple[str, ...]
    constraint: Condition
    binding: Mapping[str, int] | None

    def __str__(self) -> str:
        where = ", ".join(f"`{name}`" for name in self.buffers) or "the arena"
        if self.binding is None:
            return f"{where}: {self.problem}: could not prove {self.constraint}"
        at = ", ".join(f"{name} = {value}" for name, value in sorted(self.binding.items())) or "every binding"
        return f"{where}: {self.problem} at {at}"


class PlanRefusedError(Exception):
    """A plan that does not validate; `faults` says what is wrong with it.

    Built from the text alone where it has crossed TVM's pass runner, which keeps nothing else:  `faults`
    is empty then.
    """

    def __init__(self, message: str, faults: tuple[PlanFault, ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults

    @classmethod
    def of(cls, function: str, faults: Sequence[PlanFault]) -> PlanRefusedError:
        """The refusal of the plan for `function`, naming the first of its faults that has a binding."""
        first = next((fault for fault in faults if fault.binding is not None), faults[0])
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        return cls(f"the plan for `{function}` is refused: {first}{more}", tuple(faults))
