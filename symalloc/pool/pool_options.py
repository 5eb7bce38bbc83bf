"""Options of a pool; soft limits are read from text, too: amounts of memory (64KiB) and ratios (1.05)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from symalloc.arguments import AMOUNT, MOST_BYTES, require_bytes, shown
from symalloc.errors import UsageError
from symalloc.pool.pool_errors import PoolUsageError

ALIGNMENT = 64  # generated code assumes it; sizes are multiples of it too
KIB = 2**10

RATIOS_BELOW = 100
RANGE_CAPACITY = 2**40  # bytes
MOST = MOST_BYTES
LEAST_PAGE, MOST_PAGE = 4 * KIB, 2**30
MOST_CACHED = 2**60
MOST_BINNED = 64 * KIB
MOST_CAPACITY = 2**46
MOST_ALIGNED = 2**30
MOST_SECONDS = 10**9
LEAST_DECAY = 0.001  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """The options of a pool; sizes in bytes.  Raises PoolUsageError for values that make no sense.

    `soft_limit` is a ratio to the largest sum of bytes in use so far (a Fraction, or a float below 100), yet
    at least 2 MiB, or bytes (an int), or None: free pages are never given back by themselves.  `limit` bounds
    the bytes backed; None: what memory there is.  `page` is the unit that is backed and given back;
    `capacity` the address space of one range, None: enough.  `separate_escaping` places blocks that outlive
    their call in a second range.  Of each range a thread caches `bin_capacity` bytes in bins, and twice as
    many in its large-block cache.  Free pages that nobody needed for `decay` seconds are
    given back; None: never.  Amounts may be whole floats (1e9), and text such as "2GiB", too.
    """

    soft_limit: Fraction | int | None = Fraction(11, 10)
    limit: int | None = None
    page: int = 64 * KIB
    separate_escaping: bool = False
    bin_largest: int = MOST_BINNED
    bin_capacity: int = 2048 * KIB
    capacity: int | None = None
    decay: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "soft_limit", read_soft_limit(self.soft_limit))
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None or name not in {"limit", "capacity"}:
                amount = read_bytes(value, name, least=least, most=most)
                object.__setattr__(self, name, amount)
        read_flag(self.separate_escaping, "separate_escaping")
        if self.decay is not None:
            object.__setattr__(self, "decay", read_seconds(self.decay, "decay", least=LEAST_DECAY))
        if self.page & (self.page - 1):
            raise PoolUsageError(f"the page size must be a power of two, not {self.page}")
        if self.capacity is not None and self.capacity % self.page:
            raise PoolUsageError(
                f"the capacity of a range must be whole pages of {self.page} bytes, not {self.capacity}"
            )

    @property
    def range_capacity(self) -> int:
        """Bytes of address space of one range, where no system bounds it."""
        return RANGE_CAPACITY if self.capacity is None else self.capacity


_BOUNDS = {
    "limit": (0, MOST),
    "page": (LEAST_PAGE, MOST_PAGE),
    "bin_largest": (0, MOST_BINNED),
    "bin_capacity": (0, MOST_CACHED),
    "capacity": (1, MOST_CAPACITY),
}


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


def read_soft_limit(value: object) -> Fraction | int | None:
    """A soft limit as `PoolOptions` holds it; raises PoolUsageError."""
    soft = parse_soft_limit(value) if isinstance(value, str) else value
    if isinstance(soft, float) and soft < RATIOS_BELOW and isfinite(soft):
        soft = Fraction(str(soft))
    if soft is None:
        return None
    if not isinstance(soft, Fraction):
        return read_bytes(soft, "soft_limit")
    if soft < 1:
        raise PoolUsageError(f"a soft limit of {float(soft)} times what is in use cannot be held")
    if max(soft.numerator, soft.denominator) > MOST:
        raise PoolUsageError(f"a soft limit of {soft} times what is in use is beyond 64 bits")
    return soft


def parse_soft_limit(text: str) -> Fraction | int | None:
    """A ratio (a number below 100 without a unit), bytes, or None for `none`; raises PoolUsageError."""
    if text.strip().lower() == "none":
        return None
    match = AMOUNT.fullmatch(text.strip())
    if match is not None and not match[2] and Fraction(match[1]) < RATIOS_BELOW:
        return Fraction(match[1])
    return read_bytes(text, "soft_limit")
