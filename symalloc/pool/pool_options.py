"""Options of a pool; soft limits are read from text, too: amounts of memory (64KiB) and ratios (1.05)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import isfinite

from symalloc.errors import AMOUNT, MOST_BYTES, require_bytes, require_seconds, shown
from symalloc.options import Kind, option, read_fields
from symalloc.pool.pool_errors import PoolUsageError, checked

ALIGNMENT = 64  # generated code assumes it; sizes are multiples of it too
KIB = 2**10

RATIOS_BELOW = 100
MOST = MOST_BYTES
LEAST_PAGE, MOST_PAGE = 4 * KIB, 2**30
MOST_CACHED = 2**60
MOST_BINNED = 64 * KIB
MOST_CAPACITY = 2**46
MOST_SECONDS = 10**9


def _soft_limit(name: str, value: object) -> Fraction | int | None:
    """A ratio (a number below 100 without a unit, or a Fraction), else bytes; None as `none`."""
    text = value.strip() if isinstance(value, str) else ""
    if value is None or text.lower() == "none":
        return None
    amount = AMOUNT.fullmatch(text)
    plain = amount[1] if amount is not None and not amount[2] else None
    if isinstance(value, float) and isfinite(value):
        plain = str(value)
    soft = value if isinstance(value, Fraction) else Fraction(plain) if plain is not None else None
    if soft is None or (soft >= RATIOS_BELOW and soft is not value):
        return require_bytes(name, value)
    if soft < 1:
        raise PoolUsageError(f"a soft limit of {float(soft)} times what is in use cannot be held")
    if max(soft.numerator, soft.denominator) > MOST:
        raise PoolUsageError(f"a soft limit of {soft} times what is in use is beyond 64 bits")
    return soft


def _bytes(least: int, most: int) -> Kind:
    return Kind(read=partial(require_bytes, least=least, most=most), metavar="BYTES")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """The options of a pool; sizes in bytes, or text such as "2GiB".

    Raises PoolUsageError for values that make no sense.
    """

    soft_limit: Fraction | int | None = option(
        "1.1",
        Kind(read=_soft_limit, metavar="RATIO|BYTES|none"),
        "Above it, symalloc's pool gives free pages back before it takes more: a ratio to the most "
        "bytes used so far (a number below 100), or an amount such as 512MiB.",
    )
    limit: int | None = option(
        None, _bytes(0, MOST), "The most bytes that symalloc's pool may reserve; past it, allocations fail."
    )
    page: int = option(
        "64KiB", _bytes(LEAST_PAGE, MOST_PAGE), "The unit in which memory is taken and given back."
    )
    bin_largest: int = option(
        MOST_BINNED, _bytes(0, MOST_BINNED), "The largest block that a thread caches in bins."
    )
    bin_capacity: int = option(
        "2MiB",
        _bytes(0, MOST_CACHED),
        "The bytes that a thread caches in bins; twice as many in its large-block cache.",
    )
    capacity: int | None = option(None, _bytes(1, MOST_CAPACITY), "The address space; by default enough.")
    decay: float | None = option(
        None,
        Kind(read=partial(require_seconds, most=MOST_SECONDS), metavar="SECONDS"),
        "Free pages that nobody needed for so many seconds are given back; by default never.",
    )

    def __post_init__(self) -> None:
        checked(read_fields, self)
        if self.page & (self.page - 1):
            raise PoolUsageError(f"the page size must be a power of two, not {self.page}")
        if self.capacity is not None and self.capacity % self.page:
            raise PoolUsageError(
                f"the capacity of a range must be whole pages of {self.page} bytes, not {self.capacity}"
            )


def round_up(value: int, multiple: int) -> int:
    """Return the least multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


def read_seconds(name: str, value: object) -> float:
    """A duration that may be 0; raises PoolUsageError."""
    return checked(require_seconds, name, value, least=0, most=MOST_SECONDS)


def require_name(value: object, name: str) -> str:
    """The text that a block, a session or a function is called by; raises PoolUsageError."""
    if not isinstance(value, str):
        raise PoolUsageError(f"{name} is a text, not {shown(value)}")
    try:
        value.encode()
    except UnicodeError:
        raise PoolUsageError(f"{name} is a text of Unicode's characters, not {shown(value)}") from None
    return value
