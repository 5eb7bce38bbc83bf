"""Limits on the work that a proof may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one proof; a proof that reaches them is reported as unknown.

    `z3_steps`: resources that z3 may spend in vain on one proof (0: never ask), the same on every machine and
    under any load.  `sampling_steps`: points evaluated in search of a smaller one.  `cases`: branches of a
    case distinction.  `work`: machine-word operations of the exact simplex in one attempt at a refutation.
    """

    z3_steps: int = 100_000
    sampling_steps: int = 4_000
    cases: int = 96
    work: int = 80_000


GLANCE = Budget(z3_steps=5_000, sampling_steps=400, cases=12, work=6_000)
"""For what is of use only where it is settled soon."""


class Meter:
    """Counts down the elementary operations that one attempt at a proof has left."""

    __slots__ = ("left",)

    def __init__(self, work: int) -> None:
        self.left = work

    def spend(self, operations: int) -> bool:
        """Take `operations` away; whether any are left."""
        self.left -= operations
        return self.left > 0
