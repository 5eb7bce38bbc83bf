"""Random programs for a pool: what to allocate, and which live block to free."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from symalloc.pool.trace import Alloc, Event, Free, Trace

KIB = 2**10


@dataclass(frozen=True)
class Step:
    """Allocate `nbytes` at `align`; then free `frees` live blocks, picked by `pick`."""

    nbytes: int
    align: int
    frees: int
    pick: int


SIZES = st.one_of(st.integers(0, 300), st.integers(0, 70 * KIB), st.integers(0, 1024 * KIB))
STEPS = st.lists(
    st.builds(
        Step,
        nbytes=SIZES,
        align=st.sampled_from((1, 64, 64, 64, 256, 4096)),
        frees=st.sampled_from((0, 0, 1, 1, 2, 5)),
        pick=st.integers(0, 1000),
    ),
    max_size=80,
)


def peak_live(trace: Trace) -> int:
    """The largest sum of bytes live at one moment."""
    sizes: dict[int, int] = {}
    live = peak = 0
    for event in trace.events:
        if isinstance(event, Alloc):
            sizes[event.block] = event.nbytes
            live += event.nbytes
            peak = max(peak, live)
        elif isinstance(event, Free):
            live -= sizes.pop(event.block)
    return peak


def as_trace(steps: list[Step]) -> Trace:
    """The program as a trace; alignment is lost."""
    events: list[Event] = []
    live: list[int] = []
    for block, step in enumerate(steps):
        events.append(Alloc(block=block, nbytes=step.nbytes))
        live.append(block)
        events += [Free(block=live.pop(step.pick % len(live))) for _ in range(min(step.frees, len(live)))]
    return Trace(name="random", events=tuple(events))
