"""Options of a pool; soft limits are read from text, too: amounts of memory (64KiB) and ratios (1.05)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import isfinite

from symalloc.arguments import AMOUNT, MOST_BYTES, require_bytes, shown
from symalloc.errors import UsageError
from symalloc.options import Kind, option, read_fields
from symalloc.pool.pool_errors import PoolUsageError

ALIGNMENT = 64  # generated code assumes it; sizes are multiples of it too
KIB = 2**10

RATIOS_BELOW = 100
MOST = MOST_BYTES
LEAST_PAGE, MOST_PAGE = 4 * KIB, 2**30
MOST_CACHED = 2**60
MOST_BINNED = 64 * KIB
MOST_CAPACITY = 2**46
MOST_SECONDS = 10**9
LEAST_DECAY = 0.001  # seconds


def _soft_limit(name: str, value: object) -> Fraction | int | None:
    soft = parse_soft_limit(value, name) if isinstance(value, str) else value
    if isinstance(soft, float) and soft < RATIOS_BELOW and isfinite(soft):
        soft = Fraction(str(soft))
    if soft is None:
        return None
    if not isinstance(soft, Fraction):
        return require_bytes(name, soft)
    if soft < 1:
        raise PoolUsageError(f"a soft limit of {float(soft)} times what is in use cannot be held")
    if max(soft.numerator, soft.denominator) > MOST:
        raise PoolUsageError(f"a soft limit of {soft} times what is in use is beyond 64 bits")
    return soft


def parse_soft_limit(text: str, name: str = "soft_limit") -> Fraction | int | None:
    """A ratio (a number below 100 without a unit), bytes, or None for `none`; raises PoolUsageError."""
    if text.strip().lower() == "none":
        return None
    match = AMOUNT.fullmatch(text.strip())
    if match is not None and not match[2] and Fraction(match[1]) < RATIOS_BELOW:
        return Fraction(match[1])
    return read_bytes(text, name)


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
        Kind(read=lambda name, value: read_seconds(value, name, least=LEAST_DECAY), metavar="SECONDS"),
        "Free pages that nobody needed for so many seconds are given back; by default never.",
    )

    def __post_init__(self) -> None:
        try:
            read_fields(self)
        except UsageError as error:
            raise PoolUsageError(str(error)) from None
        if self.page & (self.page - 1):
            raise PoolUsageError(f"the page size must be a power of two, not {self.page}")
        if self.capacity is not None and self.capacity % self.page:
            raise PoolUsageError(
                f"the capacity of a range must be whole pages of {self.page} bytes, not {self.capacity}"
            )


def round_up(value: int, multiple: int) -> int:
    """Return the least multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


def read_flag(value: object, name: str) -> None:
    """Raise PoolUsageError where an option that is on or off is neither."""
    if not isinstance(value, bool):
        raise PoolUsageError(f"`{name}` is True or False, not {shown(value)}")


def require_name(value: object, name: str) -> str:
    """The text that a block, a session or a function is called by; raises PoolUsageError."""
    if not isinstance(value, str):
        raise PoolUsageError(f"{name} is a text, not {shown(value)}")
    try:
        value.encode()
    except UnicodeError:
        raise PoolUsageError(f"{name} is a text of Unicode's characters, not {shown(value)}") from None
    return value


def read_bytes(value: object, name: str, *, least: int = 0, most: int = MOST) -> int:
    """The bytes that an option is given as: an int, a whole float, or text.  Raises PoolUsageError."""
    try:
        return require_bytes(f"`{name}`", value, least=least, most=most)
    except UsageError as error:
        raise PoolUsageError(str(error)) from None


def read_seconds(value: object, name: str, *, least: float = 0) -> float:
    """A duration in seconds; raises PoolUsageError."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= MOST_SECONDS:  # type: ignore[operator]
        raise PoolUsageError(
            f"`{name}` is a number of seconds from {least} to {MOST_SECONDS}, not {shown(value)}"
        )
    return float(value)  # type: ignore[arg-type]
