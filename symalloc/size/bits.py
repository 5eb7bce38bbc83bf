"""Bitwise operations with constants as remainders, in two's complement, whatever the sign."""

from __future__ import annotations

import re

from symalloc.size.expr import ZERO, Expr, mod

_MOST_RUNS = 4


def masked(value: Expr, mask: int) -> Expr | None:
    """`value & mask`; None where the mask, or its complement if it is negative, has more than 4 runs of bits.

    The bits of `value` below `2**k` are `value % 2**k`, so that each run takes two remainders.
    """
    if mask < 0:
        dropped = masked(value, ~mask)
        return None if dropped is None else value - dropped
    runs = [(run.start(), run.end()) for run in re.finditer("1+", f"{mask:b}"[::-1])]
    if len(runs) > _MOST_RUNS:
        return None
    return sum((mod(value, 1 << end) - mod(value, 1 << begin) for begin, end in runs), ZERO)
