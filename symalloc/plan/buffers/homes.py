"""Which arena each buffer lies in: those reserved at entry, and those behind an instruction.

Where every size is known at entry there is one arena for each device and scope.  Sizes that come later
cut the body into stretches: a buffer that lives within one lies in the arena reserved at its start, which is
gone at its end.  What lives across a cut would hold its whole arena: it may be better off by itself.  The
candidates are judged by the bytes reserved at one moment over the floor, at a grid of bindings.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from typing import TypeAlias

from symalloc.plan.buffers.known import Definition
from symalloc.plan.model import Buffer

__all__ = ["HELD", "Resident", "homes"]

TOLERANCE = 1.05
EXTENTS = (1, 64, 4096)
MOST_SYMBOLS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A buffer with its live range, and what its size waits for; None for one that is known at entry."""

    buffer: Buffer
    needs: Definition | None


def homes(residents: Sequence[Resident], steps: Sequence[int]) -> tuple[list[Buffer], list[Buffer]]:
    """The buffers arena by arena, each with its `Buffer.after`; and those that are better off without one.

    `steps` gives the step of each moment.
    """
    places: dict[tuple[int, str], list[Resident]] = {}
    for resident in residents:
        places.setdefault((resident.buffer.device, resident.buffer.scope), []).append(resident)
    found: list[Buffer] = []
    alone: list[Buffer] = []
    for members in places.values():
        cuts = _cuts(members)
        if not cuts:
            found += [member.buffer for member in members]
            continue
        chosen = _Street(members, cuts, steps).chosen()
        for home, after in enumerate((None, *(cut.var for cut in cuts))):
            at_home = (m for m, h in zip(members, chosen, strict=True) if h == home)
            found += [replace(member.buffer, after=after) for member in at_home]
        alone += [m.buffer for m, h in zip(members, chosen, strict=True) if h == _ALONE]
    return found, alone


HELD = "it lives across the point where a later size becomes known: an arena would be held with it"
_ALONE = -1

Homes: TypeAlias = tuple[int, ...]
"""For each buffer how many cuts its arena lies behind; _ALONE without an arena."""


def _cuts(members: Iterable[Resident]) -> list[Definition]:
    """The instructions that sizes wait for, in order."""
    needed = {m.needs.step: m.needs for m in members if m.needs is not None}
    return [needed[step] for step in sorted(needed)]


class _Street:
    """The buffers of one device and scope, and the cuts between which they live."""

    def __init__(self, members: Sequence[Resident], cuts: Sequence[Definition], steps: Sequence[int]) -> None:
        self.members, self.steps = members, steps
        self.lines = [cut.step for cut in cuts]
        self.lives = [m.buffer.live for m in members]
        self.spans = [(m.buffer.steps or (0, 0)) for m in members]
        self.births = tuple(bisect_left(self.lines, first) for first, _ in self.spans)
        self.deaths = tuple(bisect_left(self.lines, last) for _, last in self.spans)
        self.sizes = [[m.buffer.size.evaluate(at) for m in members] for at in _bindings(members)]

    def chosen(self) -> Homes:
        """The first candidate within the tolerance, else the best."""
        worst: dict[Homes, float] = {}
        for candidate in self.candidates():
            worst[candidate] = self.ratio(candidate)
            if worst[candidate] <= TOLERANCE:
                return candidate
        return min(worst, key=lambda candidate: worst[candidate])

    def candidates(self) -> Iterator[Homes]:
        """Each in the stretch that it begins in; each where its size is known; crossing ones alone; then all
        of the stretches alone that are too large even so, which reserves no more than the floor.
        """
        yield self.births
        yield tuple(self.lines.index(m.needs.step) + 1 if m.needs else 0 for m in self.members)
        sides = zip(self.births, self.deaths, strict=True)
        apart = tuple(birth if birth == death else _ALONE for birth, death in sides)
        yield apart
        large = {home for home in set(self.births) if self.ratio(apart, home) > TOLERANCE}
        yield tuple(_ALONE if home in large else home for home in apart)

    def ratio(self, homes: Homes, stretch: int | None = None) -> float:
        """The worst ratio of bytes reserved at one moment (of one stretch) to the floor."""
        every = range(len(self.members))
        worst = 1.0
        for sizes in self.sizes:
            floor = max(self.together(every, sizes))
            moments = zip(self.reserved(homes, sizes), self.steps, strict=True)
            peak = max((n for n, s in moments if stretch in (None, bisect_left(self.lines, s))), default=0)
            worst = max(worst, peak / floor if floor else 1.0)
        return worst

    def reserved(self, homes: Homes, sizes: Sequence[int]) -> list[int]:
        """The bytes reserved at each moment: arenas at their floor, and buffers without one."""
        total = self.together([i for i, home in enumerate(homes) if home == _ALONE], sizes)
        for home in set(homes) - {_ALONE}:
            inside = [i for i, h in enumerate(homes) if h == home]
            height = max(self.together(inside, sizes))
            begin = self.lines[home - 1] if home else -1
            end = max(self.spans[i][1] for i in inside)
            total = [n + height * (begin < s <= end) for n, s in zip(total, self.steps, strict=True)]
        return total

    def together(self, indices: Iterable[int], sizes: Sequence[int]) -> list[int]:
        """The bytes of the given buffers that are live at each moment."""
        changes = [0] * (len(self.steps) + 1)
        for i in indices:
            for begin, end in self.lives[i]:
                changes[begin] += sizes[i]
                changes[end] -= sizes[i]
        return list(accumulate(changes[:-1]))


def _bindings(members: Iterable[Resident]) -> Iterator[Mapping[str, int]]:
    """A grid of extents over all symbols; its diagonal where they are many."""
    names = sorted(frozenset().union(*(m.buffer.size.symbols for m in members)))
    if len(names) > MOST_SYMBOLS:
        return (dict.fromkeys(names, extent) for extent in EXTENTS)
    grid = product(EXTENTS, repeat=len(names))
    return (dict(zip(names, extents, strict=True)) for extents in grid)
