"""Memory that may be planned, before it has a place in an arena."""

from __future__ import annotations

from typing import NamedTuple

from symalloc.analysis.liveness import LiveRange
from symalloc.planner.buffers.sizing import SymbolDefinition
from symalloc.planner.buffers.tenant import Tenant
from symalloc.planner.memory_plan import Buffer, Unplanned
from symalloc.program.ir import Var
from symalloc.program.record import record
from symalloc.program.types import ALIGNMENT
from symalloc.prover.domain import Domain
from symalloc.size.expr import Expr, round_up


class Memory(NamedTuple):
    """Memory that a plan may place: the fields of `Buffer` that are known before its lifetime is.

    `definition` is what its size waits for; None where that is known at entry.  `made` is the point of its
    allocation.
    """

    name: str
    size: Expr
    nbytes: Expr
    device: int
    scope: str
    var: Var
    callee: str | None
    grounded: bool
    lent: int
    returned: bool
    definition: SymbolDefinition | None
    made: int

    @property
    def place(self) -> tuple[int, str]:
        """The device and the memory scope."""
        return self.device, self.scope

    def unplanned(self, reason: str) -> Unplanned:
        """Return it as memory that is not planned, and the reason."""
        return Unplanned(name=self.name, reason=reason, nbytes=self.nbytes, var=self.var)


@record(kw_only=False)
class Candidate:
    """Memory that may be planned, with its number and its live range."""

    memory: Memory
    number: int
    time: LiveRange

    def placed(self, number: int, arena: int, defined_by: Var | None, *, lendable: bool) -> Buffer:
        """Return the buffer with the id `number` in an arena of that number."""
        time = self.time
        name, size, nbytes, device, scope, var, callee, grounded, lent, returned, _, _ = self.memory
        return Buffer(  # by position: keywords, or `replace`, take as long as the rest of this
            number,
            name,
            size,
            time.live,
            nbytes,
            device,
            scope,
            var,
            ALIGNMENT,
            callee,
            defined_by,
            (time.first, time.last),
            grounded,
            lent,
            arena,
            returned,
            lendable,
        )

    def tenant(self, domain: Domain, *, apart: bool) -> Tenant:
        """Return the properties that count when arenas are compared.

        With `apart` memory of a constant size shares with its like only.
        """
        _, size, nbytes, _, _, _, callee, grounded, _, returned, definition, made = self.memory
        fixed = apart and size.as_constant is not None
        if returned and size.as_constant is not None:
            size = round_up(nbytes, ALIGNMENT)  # no more is reserved for a result
        return Tenant(
            self.number,
            size,
            made,
            -1 if definition is None else definition.step,
            returned,
            callee is not None,
            grounded,
            fixed,
            self.time.live,
            _least(size, domain) if returned else 0,
        )


def _least(size: Expr, domain: Domain) -> int:
    """Return the bytes at the least extents; none where they are not defined."""
    try:
        return size.evaluate({name: domain.lower_of(name) for name in size.symbols})
    except ZeroDivisionError:
        return 0
