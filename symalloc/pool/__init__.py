"""The paged pool: growable address ranges, the policy that places blocks, statistics and traces."""

from symalloc.pool.statistics_scope import statistics

__all__ = ["statistics"]
