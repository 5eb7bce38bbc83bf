"""Which arena each buffer lies in: those whose size is known at entry, and those behind an instruction.

Where every size is known at entry there is one arena for each device and scope, held from its first use to
its last.  Sizes that come later cut the body into stretches: a buffer that lives within one lies in the arena
reserved at its start, which is gone at its end.  What lives across a cut would hold its whole arena: it may
be better off by itself.  The same goes for an arena that is held while memory is taken that no plan places.
The candidates are judged by the bytes taken at one moment over the floor, at a grid of bindings: the most on
any path over the most that any path needs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from types import MappingProxyType
from typing import TypeAlias

from symalloc.analysis.live_ranges import Intervals
from symalloc.planner.buffers.symbol_definitions import SymbolDefinition
from symalloc.planner.memory_plan import Buffer
from symalloc.size.expr import Expr

TOLERANCE = 1.05
EXTENTS = (1, 64, 4096)
MOST_SYMBOLS = 3

_AS_THEY_ARE: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A buffer with its live range, and what its size waits for; None for one that is known at entry."""

    buffer: Buffer
    needs: SymbolDefinition | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplannedRange:
    """Memory that is taken during the call, and that no plan places: `size` bytes while it is `live`.

    Of a callee that calls itself it is not known how many (None).
    """

    size: Expr | None
    live: Intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class PathLifetimes:
    """What lives when on one path: of each buffer by its number, and of strangers.

    `steps` gives the step of each moment.
    """

    lives: Sequence[Intervals]
    steps: Sequence[int]
    strangers: Sequence[UnplannedRange] = ()


def assign_arenas(
    residents: Sequence[Candidate], paths: Sequence[PathLifetimes], tops: Mapping[int, int] = _AS_THEY_ARE
) -> tuple[list[Buffer], list[Buffer]]:
    """The buffers arena by arena, each with its `Buffer.after`; and those that are better off without one.

    `tops` gives for steps within an If that of the outermost one: arenas are reserved in front of it.
    """
    places: dict[tuple[int, str], list[Candidate]] = {}
    for resident in residents:
        places.setdefault((resident.buffer.device, resident.buffer.scope), []).append(resident)
    found: list[Buffer] = []
    alone: list[Buffer] = []
    for members in places.values():
        cuts = _cuts(members)
        if not cuts and not any(path.strangers for path in paths):
            found += [member.buffer for member in members]
            continue
        chosen = _ArenaAssignment(members, cuts, paths, tops).chosen()
        for home, after in enumerate((None, *(cut.var for cut in cuts))):
            at_home = (m for m, h in zip(members, chosen, strict=True) if h == home)
            found += [replace(member.buffer, after=after) for member in at_home]
        alone += [m.buffer for m, h in zip(members, chosen, strict=True) if h == _ALONE]
    return found, alone


HELD = "an arena would be held while sizes become known, or memory is taken, that it cannot hold"
_ALONE = -1

Homes: TypeAlias = tuple[int, ...]
"""For each buffer how many cuts its arena lies behind; _ALONE without an arena."""


def _cuts(members: Iterable[Candidate]) -> list[SymbolDefinition]:
    """The instructions that sizes wait for, in order."""
    needed = {m.needs.step: m.needs for m in members if m.needs is not None}
    return [needed[step] for step in sorted(needed)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Path:
    """A timeline by the numbers of a street; `unknown` are the moments at which nobody knows how much else is
    taken, `beside` those at which anything is.
    """

    lives: Sequence[Intervals]
    steps: Sequence[int]
    unknown: frozenset[int]
    beside: frozenset[int]

    def together(self, indices: Iterable[int], sizes: Sequence[int]) -> list[int]:
        """The bytes of the given buffers that are live at each moment."""
        changes = [0] * (len(self.steps) + 1)
        for i in indices:
            for begin, end in self.lives[i]:
                changes[begin] += sizes[i]
                changes[end] -= sizes[i]
        return list(accumulate(changes[:-1]))

    def last(self, indices: Iterable[int]) -> int:
        """The last step at which one of the given buffers lives; -1 where none does."""
        return max((self.steps[live[-1][1] - 1] for i in indices if (live := self.lives[i])), default=-1)


class _ArenaAssignment:
    """The buffers of one device and scope, the cuts between which they live, and strangers, which are
    numbered behind them.
    """

    def __init__(
        self,
        members: Sequence[Candidate],
        cuts: Sequence[SymbolDefinition],
        timelines: Sequence[PathLifetimes],
        tops: Mapping[int, int],
    ) -> None:
        self.members, self.tops = members, tops
        self.lines = [cut.step for cut in cuts]
        known = [(s.size, s.live, t) for t in timelines for s in t.strangers if s.size is not None]
        self.paths = [
            _Path(
                lives=[
                    *(timeline.lives[m.buffer.id] for m in members),
                    *(live if where is timeline else () for _, live, where in known),
                ],
                steps=timeline.steps,
                unknown=_moments(s.live for s in timeline.strangers if s.size is None),
                beside=_moments(s.live for s in timeline.strangers),
            )
            for timeline in timelines
        ]
        self.loose = range(len(members), len(members) + len(known))
        self.spans = [(m.buffer.steps or (0, 0)) for m in members]
        self.births = tuple(bisect_left(self.lines, first) for first, _ in self.spans)
        self.deaths = tuple(bisect_left(self.lines, last) for _, last in self.spans)
        sizes = [*(m.buffer.size for m in members), *(size for size, *_ in known)]
        self.sizes = [[max(size.evaluate(at), 0) for size in sizes] for at in _bindings(sizes)]

    def chosen(self) -> Homes:
        """The first candidate within the tolerance, else the best."""
        worst: dict[Homes, float] = {}
        for candidate in self.candidates():
            worst[candidate] = self.ratio(candidate)
            if worst[candidate] <= TOLERANCE:
                return candidate
        return min(worst, key=lambda candidate: worst[candidate])

    def candidates(self) -> Iterator[Homes]:
        """Each in the stretch that it begins in; each where its size is known; crossing ones alone; so are
        those that no stranger lives beside; all of the stretches that are too large even so; then every one,
        which takes no more than the floor.
        """
        yield self.births
        yield tuple(self.lines.index(m.needs.step) + 1 if m.needs else 0 for m in self.members)
        sides = list(zip(self.births, self.deaths, strict=True))
        apart = tuple(birth if birth == death else _ALONE for birth, death in sides)
        yield apart
        beside = [any(p.beside & _moments([p.lives[i]]) for p in self.paths) for i in range(len(sides))]
        yield tuple(home if near else _ALONE for home, near in zip(apart, beside, strict=True))
        large = {home for home in set(self.births) if self.ratio(apart, home) > TOLERANCE}
        yield tuple(_ALONE if home in large else home for home in apart)
        yield (_ALONE,) * len(self.members)

    def ratio(self, homes: Homes, stretch: int | None = None) -> float:
        """The worst ratio of bytes taken at one moment (of one stretch) to the floor; where nobody knows how
        much else is taken, to what is live then.
        """
        worst = 1.0
        for sizes in self.sizes:
            lives = [path.together(range(len(path.lives)), sizes) for path in self.paths]
            floor = max(max(live, default=0) for live in lives)
            for path, live in zip(self.paths, lives, strict=True):
                for moment, taken in enumerate(self.reserved(path, homes, sizes)):
                    if stretch in (None, bisect_left(self.lines, path.steps[moment])):
                        least = live[moment] if moment in path.unknown else floor
                        worst = max(worst, taken / max(least, 1))
        return worst

    def reserved(self, path: _Path, homes: Homes, sizes: Sequence[int]) -> list[int]:
        """The bytes taken at each moment: arenas at their floor, and what lies in none."""
        total = path.together([*(i for i, home in enumerate(homes) if home == _ALONE), *self.loose], sizes)
        for home in set(homes) - {_ALONE}:
            inside = [i for i, h in enumerate(homes) if h == home]
            height = max(max(p.together(inside, sizes), default=0) for p in self.paths)
            first = min(self.spans[i][0] for i in inside)
            begin = self.lines[home - 1] if home else self.tops.get(first, first) - 1
            end = path.last(inside)
            total = [n + height * (begin < s <= end) for n, s in zip(total, path.steps, strict=True)]
        return total


def _moments(lives: Iterable[Intervals]) -> frozenset[int]:
    return frozenset(moment for live in lives for begin, end in live for moment in range(begin, end))


def _bindings(sizes: Iterable[Expr]) -> Iterator[Mapping[str, int]]:
    """A grid of extents over all symbols; its diagonal where they are many."""
    names = sorted(frozenset().union(*(size.symbols for size in sizes)))
    if len(names) > MOST_SYMBOLS:
        return (dict.fromkeys(names, extent) for extent in EXTENTS)
    grid = product(EXTENTS, repeat=len(names))
    return (dict(zip(names, extents, strict=True)) for extents in grid)
