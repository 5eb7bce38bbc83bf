"""Assign each buffer to an arena: one whose size is known at entry, or one behind an instruction.

Where every size is known at entry there is one arena for each device and scope, held from its first use to
its last.  Sizes that come later cut the body into stretches: a buffer that lives within one lies in the arena
reserved at its start, which is gone at its end.  What lives across a cut would hold its whole arena: it may
be better off by itself.  The same goes for an arena that is held while memory is taken that no plan places.
The assignments are judged by the bytes taken at one position over the floor, at a grid of bindings: the most
on any path over the most that any path needs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from operator import add
from typing import NamedTuple, TypeAlias

from symalloc.analysis.live_ranges import Intervals, LiveRange
from symalloc.planner.buffers.sizing import SymbolDefinition
from symalloc.planner.memory_plan import Buffer, Unplanned
from symalloc.size.expr import Expr

HELD = "an arena would be held while sizes become known, or memory is taken, that it cannot hold"
TOLERANCE = 1.05
EXTENTS = (1, 64, 4096)
MOST_SYMBOLS = 3

_NO_ARENA = -1

Assignment: TypeAlias = tuple[int, ...]
"""For each buffer how many cuts its arena lies behind; _NO_ARENA without an arena."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A buffer that may be planned.

    `definition` is what its size waits for; None where that is known at entry.
    """

    buffer: Buffer
    definition: SymbolDefinition | None

    @property
    def place(self) -> tuple[int, str]:
        """The device and the memory scope."""
        return self.buffer.device, self.buffer.scope

    def living(self, number: int, time: LiveRange) -> Candidate:
        """Return the same with the id `number` and its live range."""
        buffer = replace(self.buffer, id=number, live=time.live, steps=(time.first, time.last))
        return Candidate(buffer=buffer, definition=self.definition)

    def unplanned(self, reason: str) -> Unplanned:
        """Return what is left of the candidate where it is not planned."""
        buffer = self.buffer
        return Unplanned(name=buffer.name, reason=reason, nbytes=buffer.nbytes, var=buffer.var)


class UnplannedRange(NamedTuple):
    """Memory that is taken during the call, and that no plan places: `size` bytes while it is `live`.

    The size of what a callee takes that calls itself is not known (None).
    """

    size: Expr | None
    live: Intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class PathLifetimes:
    """The lifetimes on one path: of each candidate by its number, and of memory that no plan places.

    `steps` gives the program point of each position.
    """

    lives: Sequence[Intervals]
    steps: Sequence[int]
    unplanned: Sequence[UnplannedRange] = ()

    def bytes_live(self, pieces: Iterable[tuple[Intervals, int]]) -> list[int]:
        """Return the bytes at each position of `pieces`, given by live range and size."""
        changes = [0] * (len(self.steps) + 1)
        for live, size in pieces:
            for begin, end in live:
                changes[begin] += size
                changes[end] -= size
        return list(accumulate(changes[:-1]))

    def last(self, numbers: Iterable[int]) -> int:
        """Return the last program point at which one of the given candidates lives; -1 where none does."""
        return max((self.steps[live[-1][1] - 1] for i in numbers if (live := self.lives[i])), default=-1)


def assign_arenas(
    candidates: Sequence[Candidate],
    paths: Sequence[PathLifetimes],
    outermost_ifs: Mapping[int, int],
) -> tuple[list[Buffer], list[Candidate]]:
    """Return the buffers arena by arena, each with its `defined_by`; and those better off without an arena.

    `outermost_ifs` gives for points within an If that of the outermost one: arenas are reserved in front of
    it.
    """
    places: dict[tuple[int, str], list[Candidate]] = {}
    for candidate in candidates:
        places.setdefault(candidate.place, []).append(candidate)
    found: list[Buffer] = []
    alone: list[Candidate] = []
    for members in places.values():
        needed = {m.definition.step: m.definition for m in members if m.definition is not None}
        cuts = [needed[step] for step in sorted(needed)]
        if not cuts and not any(path.unplanned for path in paths):
            found += [member.buffer for member in members]
            continue
        chosen = _ArenaAssignment(members, cuts, paths, outermost_ifs).chosen()
        for number, point in enumerate((None, *(cut.var for cut in cuts))):
            inside = (m.buffer for m, n in zip(members, chosen, strict=True) if n == number)
            found += [replace(buffer, defined_by=point) for buffer in inside]
        alone += [m for m, n in zip(members, chosen, strict=True) if n == _NO_ARENA]
    return found, alone


class _ArenaAssignment:
    """The candidates of one device and scope, and the cuts between which they live.

    `scenes` holds for each of some bindings the sizes of the candidates, and for each path the bytes that are
    taken there beside them at each position.
    """

    def __init__(
        self,
        members: Sequence[Candidate],
        cuts: Sequence[SymbolDefinition],
        paths: Sequence[PathLifetimes],
        outermost_ifs: Mapping[int, int],
    ) -> None:
        self.members, self.paths, self.outermost_ifs = members, paths, outermost_ifs
        self.numbers = [m.buffer.id for m in members]
        self.cuts = [cut.step for cut in cuts]
        self.spans = [m.buffer.steps or (0, 0) for m in members]
        self.births = tuple(bisect_left(self.cuts, first) for first, _ in self.spans)
        self.deaths = tuple(bisect_left(self.cuts, last) for _, last in self.spans)
        self.unknown = [_positions(u.live for u in path.unplanned if u.size is None) for path in paths]
        known = [[(u.live, u.size) for u in path.unplanned if u.size is not None] for path in paths]
        sizes = [m.buffer.size for m in members]
        self.scenes = [
            (
                [_positive(size, at) for size in sizes],
                [
                    path.bytes_live((live, _positive(size, at)) for live, size in pieces)
                    for path, pieces in zip(paths, known, strict=True)
                ],
            )
            for at in _bindings((*sizes, *(size for pieces in known for _, size in pieces)))
        ]

    def chosen(self) -> Assignment:
        """Return the first assignment within the tolerance, else the best."""
        worst: dict[Assignment, float] = {}
        for assignment in self.assignments():
            worst[assignment] = self.ratio(assignment)
            if worst[assignment] <= TOLERANCE:
                return assignment
        return min(worst, key=lambda assignment: worst[assignment])

    def assignments(self) -> Iterator[Assignment]:
        """Yield assignments: each buffer in the stretch that it begins in; each where its size is known;
        crossing ones alone; so are those that nothing unplanned lives beside; all of the stretches that are
        too large even so; then every one, which takes no more than the floor.
        """
        yield self.births
        yield tuple(self.cuts.index(m.definition.step) + 1 if m.definition else 0 for m in self.members)
        sides = zip(self.births, self.deaths, strict=True)
        apart = tuple(birth if birth == death else _NO_ARENA for birth, death in sides)
        yield apart
        yield tuple(a if self.is_beside(n) else _NO_ARENA for a, n in zip(apart, self.numbers, strict=True))
        large = {arena for arena in set(self.births) if self.ratio(apart, arena) > TOLERANCE}
        yield tuple(_NO_ARENA if arena in large else arena for arena in apart)
        yield (_NO_ARENA,) * len(self.members)

    def is_beside(self, number: int) -> bool:
        """Return whether something unplanned lives at a position of the candidate `number`, on some path."""
        return any(
            not _positions(u.live for u in path.unplanned).isdisjoint(_positions([path.lives[number]]))
            for path in self.paths
        )

    def ratio(self, assignment: Assignment, stretch: int | None = None) -> float:
        """Return the worst ratio of bytes taken at one position (of one stretch) to the floor.

        Where it is not known how much else is taken, the ratio is to what is live then.
        """
        worst = 1.0
        for sizes, beside in self.scenes:
            live = self.live(range(len(assignment)), sizes)
            needed = [list(map(add, *pair)) for pair in zip(live, beside, strict=True)]
            floor = max(max(path, default=0) for path in needed)
            reserved = self.reserved(assignment, sizes, beside)
            for path, unknown, need, taken in zip(self.paths, self.unknown, needed, reserved, strict=True):
                for position, step in enumerate(path.steps):
                    if stretch in (None, bisect_left(self.cuts, step)):
                        least = need[position] if position in unknown else floor
                        worst = max(worst, taken[position] / max(least, 1))
        return worst

    def live(self, indices: Iterable[int], sizes: Sequence[int]) -> list[list[int]]:
        """Return for each path the bytes of the given members that are live at each position."""
        chosen = [(self.numbers[i], sizes[i]) for i in indices]
        return [path.bytes_live((path.lives[n], size) for n, size in chosen) for path in self.paths]

    def reserved(
        self, assignment: Assignment, sizes: Sequence[int], beside: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """Return for each path the bytes taken at each position: arenas at their floor, and what lies in
        none.
        """
        alone = self.live((i for i, arena in enumerate(assignment) if arena == _NO_ARENA), sizes)
        totals = [list(map(add, *pair)) for pair in zip(alone, beside, strict=True)]
        for arena in set(assignment) - {_NO_ARENA}:
            inside = [i for i, other in enumerate(assignment) if other == arena]
            height = max(max(live, default=0) for live in self.live(inside, sizes))
            first = min(self.spans[i][0] for i in inside)
            begin = self.cuts[arena - 1] if arena else self.outermost_ifs.get(first, first) - 1
            for number, path in enumerate(self.paths):
                end = path.last(self.numbers[i] for i in inside)
                totals[number] = [
                    n + height * (begin < s <= end) for n, s in zip(totals[number], path.steps, strict=True)
                ]
        return totals


def _positions(lives: Iterable[Intervals]) -> frozenset[int]:
    return frozenset(position for live in lives for begin, end in live for position in range(begin, end))


def _positive(size: Expr, binding: Mapping[str, int]) -> int:
    return max(size.evaluate(binding), 0)


def _bindings(sizes: Iterable[Expr]) -> Iterator[Mapping[str, int]]:
    """Yield a grid of extents over all symbols; its diagonal where they are many."""
    names = sorted(frozenset().union(*(size.symbols for size in sizes)))
    if len(names) > MOST_SYMBOLS:
        return (dict.fromkeys(names, extent) for extent in EXTENTS)
    grid = product(EXTENTS, repeat=len(names))
    return (dict(zip(names, extents, strict=True)) for extents in grid)
