"""The paged pool: growable address ranges, the policy that places blocks, statistics and traces."""

from symalloc.pool.observing.statistics_scope import statistics

__all__ = ["statistics"]
