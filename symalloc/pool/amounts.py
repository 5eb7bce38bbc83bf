"""Reading amounts of memory: 4096, 64KiB, 1.5GiB; a soft limit may also be a ratio: 1.05."""

from __future__ import annotations

import re
from fractions import Fraction

from symalloc.pool.errors import PoolUsageError

__all__ = ["parse_bytes", "parse_soft_limit"]

_FACTORS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]*)", re.IGNORECASE | re.ASCII)
RATIOS_BELOW = 100
MOST = 2**62


def parse_bytes(text: str) -> int:
    """The bytes that `text` says; raises PoolUsageError where it says none, or more than 4 EiB."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match[2].lower() not in _FACTORS:
        raise PoolUsageError(f"`{text}` is no amount of memory; write bytes, or 64KiB, 512MiB, 1.5GiB")
    nbytes = int(Fraction(match[1]) * _FACTORS[match[2].lower()])
    if nbytes > MOST:
        raise PoolUsageError(f"`{text}` is more memory than there can be")
    return nbytes


def parse_soft_limit(text: str) -> Fraction | int | None:
    """A ratio (a number below 100 without a unit), bytes, or None for `none`; raises PoolUsageError."""
    if text.strip().lower() == "none":
        return None
    match = _AMOUNT.fullmatch(text.strip())
    if match is not None and not match[2] and Fraction(match[1]) < RATIOS_BELOW:
        return Fraction(match[1])
    return parse_bytes(text)
