"""Amounts of memory that a user gives."""

from __future__ import annotations

from symalloc.arguments import require_whole
from symalloc.errors import UsageError


def parse_amount(name: str, value: object, *, least: int = 0) -> int | None:
    """Return the bytes that `value` is: "512MiB", a number, or None; raises UsageError for no amount, or
    less than `least`.
    """
    from symalloc.pool.pool_errors import PoolError
    from symalloc.pool.pool_options import parse_bytes

    if value is None:
        return None
    try:
        found = parse_bytes(value) if isinstance(value, str) else value
    except PoolError as error:
        raise UsageError(f"{name}: {error}") from None
    return require_whole(name, found, least)
