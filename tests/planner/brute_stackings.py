"""An oracle for tiny problems: every stacking, each judged from its definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from hypothesis import strategies as st

from symalloc.planner.memory_plan import Arena, Buffer
from symalloc.program.types import ALIGNMENT
from symalloc.size.choice import select
from symalloc.size.condition import Condition
from tests.program.build import Size
from tests.program.build import size as expr_of


def buffer(
    id_: int, size: Size, *live: tuple[int, int], name: str | None = None, alignment: int = ALIGNMENT
) -> Buffer:
    """A buffer of all the bytes that are set aside for it."""
    nbytes = expr_of(size)
    return Buffer(id=id_, name=name or f"t{id_}", size=nbytes, nbytes=nbytes, live=live, alignment=alignment)


@st.composite
def live_ranges(draw: st.DrawFn, last: int) -> tuple[tuple[int, int], ...]:
    begin = draw(st.integers(0, last - 2))
    end = draw(st.integers(begin + 1, last))
    if end - begin > 3 and draw(st.booleans()):
        return (begin, begin + 1), (begin + 2, end)
    return ((begin, end),)


def together(left: Buffer, right: Buffer) -> bool:
    """Whether the two share a position, found by listing positions."""
    positions = [{p for begin, end in b.live for p in range(begin, end)} for b in (left, right)]
    return not positions[0].isdisjoint(positions[1])


def pile(order: Sequence[Buffer], sizes: Mapping[int, int]) -> dict[int, int]:
    """Offsets when each buffer of `order` lies on all those before it that it meets."""
    offsets: dict[int, int] = {}
    for position, buffer in enumerate(order):
        under = [offsets[b.id] + sizes[b.id] for b in order[:position] if together(b, buffer)]
        offsets[buffer.id] = -(-max(under, default=0) // buffer.alignment) * buffer.alignment
    return offsets


def all_heights(
    buffers: Sequence[Buffer], bindings: Sequence[Mapping[str, int]]
) -> Iterator[tuple[int, ...]]:
    """For each order of the buffers the height at each binding: every stacking comes from some order."""
    sizes = [{b.id: b.size.evaluate(binding) for b in buffers} for binding in bindings]
    for order in permutations(buffers):
        offsets = [pile(order, at) for at in sizes]
        yield tuple(
            max((o[b.id] + at[b.id] for b in buffers), default=0)
            for o, at in zip(offsets, sizes, strict=True)
        )


def floor_at(buffers: Sequence[Buffer], binding: Mapping[str, int]) -> int:
    """The largest sum of sizes over all positions."""
    positions = {p for b in buffers for begin, end in b.live for p in range(begin, end)}
    return max(
        (
            sum(b.size.evaluate(binding) for b in buffers if any(s <= p < e for s, e in b.live))
            for p in positions
        ),
        default=0,
    )


def chosen_by(condition: Condition, then: Arena, otherwise: Arena) -> Arena:
    """The arena whose size and offsets are those of one where `condition` holds, and of another elsewhere."""
    placements = tuple(
        replace(a, offset=select(condition, a.offset, b.offset))
        for a, b in zip(then.placements, otherwise.placements, strict=True)
    )
    return replace(then, size=select(condition, then.size, otherwise.size), placements=placements)
