"""A tensor as it counts when arenas are compared."""

from __future__ import annotations

from symalloc.analysis.liveness import Intervals
from symalloc.program.record import record
from symalloc.size.expr import Expr


@record(kw_only=False)
class Tenant:
    """A tensor as it counts here: its `number` in the lifetimes, the point `made` of its allocation, and the
    point behind which its size is known (-1 at entry).

    `kept`: it is a result, which outlives the call.  `lent`: a callee works in it, which would take memory of
    its own elsewhere.  `grounded`: it starts a storage, so what is `live` at the same time lies in another.
    `fixed`: it shares an arena with others of constant size only.  `least` are the bytes of a result at the
    least extents.
    """

    number: int
    size: Expr
    made: int
    known: int = -1
    kept: bool = False
    lent: bool = False
    grounded: bool = False
    fixed: bool = False
    live: Intervals = ()
    least: int = 0
