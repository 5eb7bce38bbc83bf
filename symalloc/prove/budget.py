"""How much work a proof may cost."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Budget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one proof; a proof that reaches them is reported as unknown.

    `z3_milliseconds`: wall time of one question to z3 (0: never ask).  `z3_steps`: its resource limit,
    which makes most answers independent of the machine's load.  `sampling_steps`: points evaluated in
    search of a witness.
    `cases`: branches of a case distinction.  `pivots`: steps of the exact simplex.
    """

    z3_milliseconds: int = 100
    z3_steps: int = 3_000_000
    sampling_steps: int = 4_000
    cases: int = 96
    pivots: int = 120
