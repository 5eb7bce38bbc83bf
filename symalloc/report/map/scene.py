"""The contents of a picture: stretches of memory, and the blocks that lie in them over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from symalloc.planner.memory_plan import Arena, Buffer, Placement, Plan
from symalloc.pool.replaying import PoolTimeline
from symalloc.report.quantities import human_bytes
from symalloc.size.evaluation import evaluated

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBlock:
    """`size` bytes at `offset`, in use during each of `spans`, half-open.

    `kind`: `tensor`, `callee` (memory of a called function) or `result`; `at_peak`: live when most is.
    """

    name: str
    spans: tuple[Span, ...]
    offset: int
    size: int
    kind: str = "tensor"
    at_peak: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBand:
    """A stretch of memory of `size` bytes, and the blocks in it."""

    title: str
    size: int
    blocks: tuple[DrawnBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Bands over the time from 0 to `end`; `peak` is where most bytes are live, None where none are.

    `live` holds the live bytes from each time on.
    """

    title: str
    subtitle: str
    bands: tuple[DrawnBand, ...]
    end: int
    time: str
    live: tuple[tuple[int, int], ...]
    peak: int | None


def plan_scene(plan: Plan, binding: Mapping[str, int]) -> Scene:
    """Return the plan of a function at `binding`; buffers and arenas of unknown size there are left out."""
    sized = [(b.live, evaluated(b.size, binding)) for b in _planned(plan.arenas)]
    live = _live_bytes((spans, size) for spans, size in sized if size is not None)
    peak = _peak(live)
    bands = []
    for number, arena in enumerate(plan.arenas, 1):
        size = evaluated(arena.size, binding)
        if size is not None:
            placed = (_block(p, binding, peak) for p in arena.placements)
            blocks = tuple(block for block in placed if block is not None)
            bands.append(DrawnBand(title=_arena_title(arena, number), size=size, blocks=blocks))
    ends = [end for band in bands for block in band.blocks for _, end in block.spans]
    at = ", ".join(f"{name} = {value}" for name, value in binding.items())
    most = max((count for _, count in live), default=0)
    return Scene(
        title=plan.function,
        subtitle=f"{f'{at}: ' if at else ''}at most {human_bytes(most)} of planned tensors are live",
        bands=tuple(bands),
        end=max(ends, default=1),
        time="step of the call",
        live=live,
        peak=peak,
    )


def trace_scene(timeline: PoolTimeline, *, capacity: int) -> Scene:
    """Return the blocks of a trace at their addresses; `capacity` is the bytes of addresses of one range."""
    first = timeline.trace.times[0] if timeline.trace.times else 0
    lives = list(timeline.blocks.values())
    spans = [(b.begin - first, (timeline.end if b.end is None else b.end) - first) for b in lives]
    live = _live_bytes(((span,), b.nbytes) for span, b in zip(spans, lives, strict=True))
    peak = _peak(live)
    ranges: dict[int, list[DrawnBlock]] = {}
    for span, block in zip(spans, lives, strict=True):
        which, offset = divmod(block.address, capacity)
        drawn = DrawnBlock(
            name=timeline.name(block.number),
            spans=(span,),
            offset=offset,
            size=block.nbytes,
            at_peak=_live_at((span,), peak),
        )
        ranges.setdefault(which, []).append(drawn)
    most = max((count for _, count in live), default=0)
    reserved = human_bytes(timeline.statistics.peak_reserved)
    return Scene(
        title=timeline.trace.name,
        subtitle=f"at most {human_bytes(most)} live and {reserved} reserved",
        bands=tuple(
            DrawnBand(
                title="addresses" if len(ranges) == 1 else f"range {which + 1}",
                size=max(b.offset + b.size for b in blocks),
                blocks=tuple(blocks),
            )
            for which, blocks in sorted(ranges.items())
        ),
        end=max(timeline.end - first, 1),
        time="nanoseconds since the first event",
        live=live,
        peak=peak,
    )


def _planned(arenas: Sequence[Arena]) -> Iterator[Buffer]:
    return (p.buffer for arena in arenas for p in arena.placements if not p.buffer.returned)


def _block(placement: Placement, binding: Mapping[str, int], peak: int | None) -> DrawnBlock | None:
    buffer = placement.buffer
    offset, size = evaluated(placement.offset, binding), evaluated(buffer.size, binding)
    if offset is None or size is None:
        return None
    return DrawnBlock(
        name=buffer.name if buffer.callee is None else f"{buffer.callee}()",
        spans=buffer.live,
        offset=offset,
        size=size,
        kind="callee" if buffer.callee is not None else "result" if buffer.returned else "tensor",
        at_peak=size > 0 and _live_at(buffer.live, peak),
    )


def _arena_title(arena: Arena, number: int) -> str:
    if arena.result is not None:
        return f"arena {number}, in the memory of the result {arena.result.name}"
    return f"arena {number}, device {arena.device} ({arena.scope})"


def _live_bytes(sized: Iterable[tuple[Iterable[Span], int]]) -> tuple[tuple[int, int], ...]:
    """Return the live bytes from each time on at which they change."""
    changes: dict[int, int] = {}
    for spans, size in sized:
        for begin, end in spans:
            changes[begin] = changes.get(begin, 0) + size
            changes[end] = changes.get(end, 0) - size
    times = sorted(changes)
    return tuple(zip(times, accumulate(changes[time] for time in times), strict=True))


def _peak(live: Sequence[tuple[int, int]]) -> int | None:
    """Return the first time at which most bytes are live."""
    return max(live, key=lambda point: (point[1], -point[0]))[0] if live else None


def _live_at(spans: Iterable[Span], time: int | None) -> bool:
    return time is not None and any(begin <= time < end for begin, end in spans)
