"""The counters of a pool."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatistics:
    """A pool at one moment; sizes in bytes.

    `live` bytes were asked for and not freed; `used` were handed out by the ranges, rounded up, to callers
    or to the caches of `threads` threads; `peak_used` is the most of that at a time, less what waited in
    caches; `reserved` bytes are backed by pages.  `committed` and `decommitted` are the bytes of `commits`
    and `decommits` operations.  `refused` counts allocations that failed.
    """

    live: int
    allocs: int
    frees: int
    used: int
    peak_used: int
    reserved: int
    peak_reserved: int
    commits: int
    committed: int
    decommits: int
    decommitted: int
    threads: int
    refused: int = 0
