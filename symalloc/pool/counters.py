"""What is counted of a pool."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Statistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """A pool at one moment; sizes in bytes.

    `live` is what was asked for and is not freed; `used` what the ranges have handed out, rounded up, to
    callers or to the bins of `threads` threads; `peak_used` the most of that at a time, without what waited
    in bins; `reserved` what is backed by pages.  `committed` and `decommitted` are the bytes of `commits`
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
