"""Errors of the pool; their texts are meant for a person."""

from __future__ import annotations

from symalloc.errors import SymallocError, UsageError


class PoolError(SymallocError):
    """A pool refuses a request."""


class PoolUsageError(PoolError, UsageError):
    """An amount, an option or a trace makes no sense."""


class BadFreeError(PoolError, ValueError):
    """A freed handle or address is no live block: freed before, never allocated, or inside a block."""


class OutOfMemoryError(PoolError, MemoryError):
    """An allocation does not fit under the limit, or in the address space, whatever is given back."""


class BoundsError(PoolError, IndexError):
    """A tensor would lie outside its storage, for some byte of it."""


class OverrunError(PoolError):
    """Memory beside a block was written; the text names the block and the byte."""
