"""What a trace can be exported to."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from symalloc.pool.errors import PoolUsageError
from symalloc.pool.memory_viz import memory_viz_pickle
from symalloc.pool.perfetto import perfetto_json
from symalloc.pool.prometheus import prometheus_text
from symalloc.pool.timeline import Timeline

__all__ = ["EXPORTS", "exporter"]


def _prometheus(timeline: Timeline) -> bytes:
    return prometheus_text({timeline.trace.name: timeline.statistics}).encode()


EXPORTS: Mapping[str, Callable[[Timeline], bytes]] = {
    "perfetto": perfetto_json,
    "memory-viz": memory_viz_pickle,
    "prometheus": _prometheus,
}


def exporter(name: str) -> Callable[[Timeline], bytes]:
    """What makes the contents of such a file; raises PoolUsageError where there is no such form."""
    if name not in EXPORTS:
        raise PoolUsageError(f"there is no export `{name}`; there are {', '.join(EXPORTS)}")
    return EXPORTS[name]
