"""The native pools of this process."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from symalloc.pool.observed import Observed

__all__ = ["living_pools", "register"]

_pools: WeakSet[Observed] = WeakSet()
_lock = Lock()


def register(pool: Observed) -> None:
    """Adds a pool that has been made."""
    with _lock:
        _pools.add(pool)


def living_pools() -> tuple[Observed, ...]:
    """All that are referred to, in no order."""
    with _lock:
        return tuple(_pools)
