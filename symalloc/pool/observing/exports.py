"""The formats that a trace can be exported to."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from symalloc.pool.core.pool_errors import PoolUsageError
from symalloc.pool.observing.memory_viz import memory_viz_pickle
from symalloc.pool.observing.perfetto import perfetto_json
from symalloc.pool.observing.prometheus import prometheus_text
from symalloc.pool.simulating.pool_timeline import PoolTimeline

Exporter = Callable[[PoolTimeline], bytes]
EXPORTS: Mapping[str, Exporter] = {
    "perfetto": perfetto_json,
    "memory-viz": memory_viz_pickle,
    "prometheus": lambda timeline: prometheus_text({timeline.trace.name: timeline.statistics}).encode(),
}


def exporter(name: str) -> Exporter:
    """The function that makes the contents of such a file; raises PoolUsageError for an unknown format."""
    if name not in EXPORTS:
        raise PoolUsageError(f"there is no export `{name}`; there are {', '.join(EXPORTS)}")
    return EXPORTS[name]
