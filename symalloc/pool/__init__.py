"""The paged pool: one growable range per device and scope, its policy, statistics and traces."""

from symalloc.pool.tally import statistics

__all__ = ["statistics"]
