"""Options of a pool, and reading amounts of memory (4096, 64KiB, 1.5GiB) and ratios (1.05) from text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from symalloc.pool.core.pool_errors import PoolUsageError

ALIGNMENT = 64  # generated code assumes it; sizes are multiples of it too
KIB = 2**10

_FACTORS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]*)", re.IGNORECASE | re.ASCII)
RATIOS_BELOW = 100
MOST = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """The options of a pool; sizes in bytes.  Raises PoolUsageError for values that make no sense.

    `soft_limit` is a ratio to the largest sum of bytes in use so far (a Fraction), yet at least 2 MiB, or
    bytes (an int), or None: free pages are never given back by themselves.  `limit` bounds the bytes
    backed.  `page` is the unit that is backed and given back; `capacity` the address space of one range.
    `separate_escaping` places blocks that outlive their call in a second range.  Of each range a thread
    caches `bin_capacity` bytes in bins, and twice as many in its large-block cache.
    """

    soft_limit: Fraction | int | None = Fraction(11, 10)
    limit: int | None = None
    page: int = 64 * KIB
    separate_escaping: bool = False
    bin_largest: int = 64 * KIB
    bin_capacity: int = 2048 * KIB
    capacity: int = 2**40

    def __post_init__(self) -> None:
        if self.page < 4 * KIB or self.page & (self.page - 1):
            raise PoolUsageError(f"the page size must be a power of two from 4096 bytes on, not {self.page}")
        if isinstance(self.soft_limit, Fraction) and self.soft_limit < 1:
            raise PoolUsageError(
                f"a soft limit of {float(self.soft_limit)} times what is in use cannot be held"
            )
        for name, value in (("soft limit", self.soft_limit), ("limit", self.limit)):
            if value is not None and value < 0:
                raise PoolUsageError(f"the {name} must not be negative")
        if self.capacity % self.page:
            raise PoolUsageError("the capacity of a range must be whole pages")


def parse_bytes(text: str) -> int:
    """The number of bytes that `text` denotes; raises PoolUsageError for no amount, or more than 4 EiB."""
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
