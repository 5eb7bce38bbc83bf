"""Packs buffers whose sizes are known as low as possible: an exact search in the native library, begun anew
again and again.

Before it they are packed greedily, one after the other, each into the lowest gap or the smallest one, in many
orders; then again and again, what came to lie too high sooner (squeaky wheel optimization: Joslin and
Clements 1999).  The native library looks at what lies there already, at some 1e9 buffers a second: no pair is
ever stored.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from math import gcd, inf
from operator import add
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from symalloc.native.native_functions import lists_of, packer_functions
from symalloc.planner.interference import interference, live_sets
from symalloc.planner.memory_plan import Buffer

SHORTEST = 800  # steps of an attempt; what ends sooner counts as much: to order its buffers takes as long
NOISE = 0.2  # how far, as a share of all buffers, chance moves a buffer up
FORGET = 0.5  # the part of the weights of failures that is left in the next attempt
SLICE = 500  # steps at a time; Python hears of an interrupt only between them
LOWEST, CONTESTED = 0, 1  # the native library's orders of branching
RULES = (LOWEST, LOWEST, LOWEST, CONTESTED)


def align_up(nbytes: int, alignment: int) -> int:
    """Return the least multiple of `alignment` that is not below `nbytes`."""
    return -(-nbytes // alignment) * alignment


class SearchOutcome(Enum):
    """The ways in which a search ends: `CUT` by its limit."""

    CUT = 0
    FOUND = 1
    NONE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactPacking:
    """The answer to a static packing problem.

    `offsets` are bytes, in the order of the buffers; None where nothing was found within the capacity.
    `height` is theirs, in bytes; without offsets it is a proved lower bound of the height.  `optimal`:
    without a capacity, no packing is lower; with one, the answer is final: it fits, or it is proved that none
    does.  `steps` counts the nodes of the search.
    """

    offsets: list[int] | None
    height: int
    optimal: bool
    steps: int


def pack_exactly(
    buffers: Sequence[Buffer],
    start: Sequence[int],
    *,
    capacity: int | None,
    seed: int = 0,
    steps: float = inf,
    fixed: Mapping[int, int] | None = None,
) -> ExactPacking:
    """Pack `buffers` within `capacity` bytes or, where that is None, lower than with the offsets `start`.

    Their sizes are constants; those that are `fixed`, by index, stay at these offsets.  The search ends when
    the answer is final, or after about `steps` steps; the same `seed` gives the same answer.
    """
    fixed = fixed or {}
    instance = CliqueInstance.of(buffers, fixed)
    if capacity is not None and capacity < instance.floor:
        return ExactPacking(offsets=None, height=instance.floor, optimal=True, steps=0)
    sizes = [b.size.evaluate({}) for b in buffers]
    height = max(map(add, start, sizes), default=0)
    run = _PackingRun(
        instance=instance, sizes=sizes, fixed=fixed, seed=seed, most=steps, best=list(start), height=height
    )
    grain = gcd(*sizes, *(b.alignment for b in buffers), *fixed.values()) or 1
    return run.lowest(grain) if capacity is None else run.within(capacity)


@dataclass(slots=True, kw_only=True)
class _PackingRun:
    """One call of `pack_exactly`: `best` is the lowest packing so far, `height` its height."""

    instance: CliqueInstance
    sizes: Sequence[int]
    fixed: Mapping[int, int]
    seed: int
    most: float
    best: list[int]
    height: int
    steps: int = 0

    def within(self, capacity: int) -> ExactPacking:
        """Search for a packing within `capacity` bytes."""
        if self.height > capacity:
            outcome = self.attempt(Attempts(self.instance, capacity, self.seed), inf)
            if outcome is not SearchOutcome.FOUND:
                proved = outcome is SearchOutcome.NONE
                least = capacity + 1 if proved else self.instance.floor
                return ExactPacking(offsets=None, height=least, optimal=proved, steps=self.steps)
        return ExactPacking(offsets=self.best, height=self.height, optimal=True, steps=self.steps)

    def lowest(self, grain: int) -> ExactPacking:
        """Search for the lowest packing; all heights worth trying are multiples of `grain`.

        Heights between the floor and the best are tried in rounds, the least first, each round with twice the
        steps of the one before where that found nothing.
        """
        floor = align_up(self.instance.floor, grain)
        begun: dict[int, Attempts] = {}
        limit = 2 * SHORTEST
        while floor < self.height and self.steps < self.most:
            gap = (self.height - floor) // grain
            for height in dict.fromkeys(floor + gap * eighths // 8 * grain for eighths in (0, 1, 2, 4, 6)):
                if height not in begun:
                    begun[height] = Attempts(self.instance, height, self.seed)
                outcome = self.attempt(begun[height], limit)
                if outcome is SearchOutcome.NONE:
                    floor = height + grain
                if outcome is not SearchOutcome.CUT:
                    break
            else:
                limit *= 2
        optimal = floor >= self.height
        return ExactPacking(offsets=self.best, height=self.height, optimal=optimal, steps=self.steps)

    def attempt(self, attempts: Attempts, limit: float) -> SearchOutcome:
        """Go on with `attempts` for `limit` steps and take what it finds."""
        before = attempts.steps
        outcome = attempts.run(limit=min(limit, self.most - self.steps))
        self.steps += attempts.steps - before
        if outcome is SearchOutcome.FOUND:
            found = attempts.offsets
            self.best = [found.get(i, self.fixed.get(i, 0)) for i in range(len(self.sizes))]
            self.height = max(map(add, self.best, self.sizes), default=0)
        return outcome


class Attempts:
    """Attempts to pack `instance` within `capacity` bytes, which hold each buffer by itself; the same seed
    makes the same attempts.  Raises MemoryError.

    `steps` counts what they cost: nodes of the search, but at least `SHORTEST` for each.  What fails once is
    remembered from one attempt to the next.
    """

    def __init__(self, instance: CliqueInstance, capacity: int, seed: int) -> None:
        self.instance = instance
        self.steps = 0
        self._plans = _plans(instance, Random(seed))
        self._search = packer_functions.create(
            -(-capacity // instance.unit),
            _int64(instance.sizes),
            _int64(instance.alignments),
            _int64(0 if at is None else at for at in instance.fixed),
            _int64(
                (capacity - nbytes) // instance.unit if at is None else at
                for nbytes, at in zip(instance.nbytes, instance.fixed, strict=True)
            ),
            lists_of(instance.cliques),
            lists_of(instance.members),
            lists_of(instance.neighbours),
        )

    @property
    def offsets(self) -> dict[int, int]:
        """Offsets in bytes by id: the packing, where the last attempt found one."""
        offsets = array("q", packer_functions.offsets(self._search))
        return {id_: self.instance.unit * at for id_, at in zip(self.instance.ids, offsets, strict=True)}

    def run(self, *, limit: float = inf) -> SearchOutcome:
        """Go on for about `limit` more steps: of the buffers that may come next, an attempt tries the one of
        the highest priority first.
        """
        end = self.steps + limit
        outcome = SearchOutcome.CUT
        while outcome is SearchOutcome.CUT and self.steps < end:
            priorities, rule, steps = next(self._plans)
            packer_functions.begin(self._search, array("i", priorities).tobytes(), rule, FORGET)
            before = made = packer_functions.steps(self._search)
            while outcome is SearchOutcome.CUT and made < before + steps:
                left = before + steps - made
                outcome = SearchOutcome(packer_functions.go(self._search, min(SLICE, left)))
                made = packer_functions.steps(self._search)
            self.steps += max(made - before, SHORTEST)
        return outcome


def _int64(numbers: Iterable[int]) -> bytes:
    return array("q", numbers).tobytes()


def luby(number: int) -> int:
    """The `number`-th term (from 1) of 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 …"""
    while (number + 1) & number:
        number -= (1 << (number.bit_length() - 1)) - 1
    return (number + 1) >> 1


def _plans(instance: CliqueInstance, chance: Random) -> Iterator[tuple[list[int], int, int]]:
    """Priorities, rule and number of steps of one attempt after another."""
    orders, number = _orders(instance), 0
    while True:
        turn, place = divmod(number, len(RULES))
        ranks = orders[(number + turn) % len(orders)]
        noise = NOISE * len(ranks) if turn else 0.0
        moved = [rank + noise * chance.random() for rank in ranks]
        yield _ranks(moved), RULES[place], SHORTEST * luby(number + 1)
        number += 1


def _orders(instance: CliqueInstance) -> list[list[int]]:
    """Ranks by area, by how many cliques a buffer is in, by the fullest clique it is in, and by size."""
    sizes, cliques = instance.sizes, instance.cliques
    areas = [size * duration for size, duration in zip(sizes, instance.durations, strict=True)]
    full = [sum(sizes[i] for i in members) for members in instance.members]
    crowds = [(len(mine), size) for mine, size in zip(cliques, sizes, strict=True)]
    fullest = [(max(full[c] for c in mine), area) for mine, area in zip(cliques, areas, strict=True)]
    return [_ranks(areas), _ranks(crowds), _ranks(fullest), _ranks(sizes)]


def _ranks(scores: Sequence[float] | Sequence[tuple[int, int]]) -> list[int]:
    """The place of each score among all in order, the least first."""
    ranks = [0] * len(scores)
    for rank, index in enumerate(sorted(range(len(scores)), key=scores.__getitem__)):
        ranks[index] = rank
    return ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class CliqueInstance:
    """A problem with its buffers numbered 0, 1, … in the order of their first clique, in units.

    `ids` are the indices of these buffers in the sequence that was given; buffers of no size and those that
    are never live are left out.  A unit is the greatest common divisor of the alignments and of the offsets
    of those that are `fixed`, in bytes; every offset is a multiple of it, so `sizes` are rounded up to it.
    `members` lists for each clique (a set of buffers live at one position, the maximal ones among them) its
    buffers, `cliques` the other way round.
    """

    ids: tuple[int, ...]
    unit: int
    nbytes: tuple[int, ...]
    sizes: tuple[int, ...]
    alignments: tuple[int, ...]
    durations: tuple[int, ...]
    fixed: tuple[int | None, ...]
    cliques: tuple[tuple[int, ...], ...]
    members: tuple[tuple[int, ...], ...]
    neighbours: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, buffers: Sequence[Buffer], fixed: Mapping[int, int]) -> CliqueInstance:
        """Return the instance of `buffers`, whose sizes are constants; some have `fixed` offsets in bytes."""
        together = list(live_sets([b.live if b.size.evaluate({}) else () for b in buffers]))
        within: dict[int, list[int]] = {}
        for number, group in enumerate(together):
            for id_ in group:
                within.setdefault(id_, []).append(number)
        ids = sorted(within, key=lambda i: (within[i][0], i))
        index = {id_: i for i, id_ in enumerate(ids)}
        members = tuple(tuple(sorted(index[id_] for id_ in group)) for group in together)
        inside = tuple(tuple(within[id_]) for id_ in ids)
        ordered = [buffers[id_] for id_ in ids]
        nbytes = tuple(b.size.evaluate({}) for b in ordered)
        unit = gcd(*(b.alignment for b in ordered), *fixed.values()) or 1
        return cls(
            ids=tuple(ids),
            unit=unit,
            nbytes=nbytes,
            sizes=tuple(-(-size // unit) for size in nbytes),
            alignments=tuple(b.alignment // unit for b in ordered),
            durations=tuple(sum(end - begin for begin, end in b.live) for b in ordered),
            fixed=tuple(fixed[id_] // unit if id_ in fixed else None for id_ in ids),
            cliques=inside,
            members=members,
            neighbours=interference(ordered),
        )

    @property
    def floor(self) -> int:
        """A lower bound of the height in bytes: the largest sum of sizes in one clique.

        Where all share an alignment every buffer but the topmost takes its size rounded up to it.  Nothing
        is lower than the end of what is fixed.
        """
        step = self.unit if set(self.alignments) <= {1} else 1
        rounded = [align_up(size, step) for size in self.nbytes]
        heights = (
            sum(rounded[i] for i in group) - max(rounded[i] - self.nbytes[i] for i in group)
            for group in self.members
        )
        ends = (at * self.unit + n for at, n in zip(self.fixed, self.nbytes, strict=True) if at is not None)
        return max((*heights, *ends), default=0)


AT_ONCE, ROUNDS, LOOKS = 500, 64, 100
"""Buffers that are put before Python hears of an interrupt; rounds at most; buffers that these may look at in
the place of each neighbour that the exact method may.
"""

Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedBuffers:
    """Buffers of known sizes and those of them that are `fixed`, by index with their offsets.

    `positions` are those at which something begins or ends, `loads` the bytes that are live from each to the
    next; `lives` begin and end at one of them, by its index, `begins` and `ends` are the hulls.  `durations`
    are as given.
    """

    buffers: Sequence[Buffer]
    fixed: Mapping[int, int]
    sizes: Numbers
    loads: Numbers
    begins: Numbers
    ends: Numbers
    durations: NDArray[np.float64]
    lives: Sequence[Sequence[int]]

    @classmethod
    def of(cls, buffers: Sequence[Buffer], fixed: Mapping[int, int]) -> SizedBuffers:
        """Return `buffers` in numbers; the sum of their sizes fits in 63 bits."""
        positions = sorted({at for b in buffers for live in b.live for at in live})
        index = {at: i for i, at in enumerate(positions)}
        lives = [[index[at] for live in b.live for at in live] for b in buffers]
        sizes = np.array([b.size.evaluate({}) for b in buffers], dtype=np.int64)
        counts = np.array([len(live) for live in lives], dtype=np.int64) // 2
        places = np.fromiter(chain.from_iterable(lives), dtype=np.int64).reshape(-1, 2)
        changes = np.zeros(len(positions) + 1, dtype=np.int64)
        np.add.at(changes, places[:, 0], np.repeat(sizes, counts))
        np.subtract.at(changes, places[:, 1], np.repeat(sizes, counts))
        return cls(
            buffers=buffers,
            fixed=fixed,
            sizes=sizes,
            loads=changes.cumsum(),
            begins=np.array([live[0] for live in lives], dtype=np.int64),
            ends=np.array([live[-1] for live in lives], dtype=np.int64),
            durations=np.array([sum(end - begin for begin, end in b.live) for b in buffers], dtype=float),
            lives=lives,
        )

    @property
    def floor(self) -> int:
        """The most bytes that are live at one position, and the end of what is fixed: no arena is smaller."""
        ends = (at + int(self.sizes[i]) for i, at in self.fixed.items())
        return max(int(self.loads.max(initial=0)), *ends, 0)

    def height(self, offsets: Numbers) -> int:
        """Return the end of the topmost buffer; 0 where there is none."""
        return int((offsets + self.sizes).max(initial=0))

    def orders(self) -> Iterator[tuple[Numbers, bool]]:
        """Yield orders in which to put the buffers, the most promising first, and whether the smallest gap is
        worth a try, too.

        Those by size, area, lifespan, begin and breadth (Pisarchyk and Lee 2020) are the textbook's.  The
        first goes from the fullest moment backwards and forwards in time: what is live there is piled up
        without a gap, and what follows finds whole stretches free.
        """
        peak, sizes, index = int(self.loads.argmax()), -self.sizes, np.arange(len(self.sizes))
        away = np.maximum(np.maximum(self.begins - peak, peak + 1 - self.ends), 0)
        yield np.lexsort((sizes, away)), True
        yield from ((np.lexsort((tie, sizes)), tie is index) for tie in (index, -self.durations, self.begins))
        for key in (sizes * np.sqrt(self.durations), sizes * self.durations, -self.durations, self.begins):
            yield np.lexsort((index, key)), key is self.begins
            yield np.lexsort((sizes, -self.durations, key)), False
        yield np.lexsort((sizes, -self.breadths())), True

    def breadths(self) -> Numbers:
        """Return the most that is live at one moment within the life of each buffer."""
        spans = np.maximum(self.ends - self.begins, 1)
        levels = np.frexp(spans)[1] - 1
        most, found = self.loads, np.zeros_like(self.sizes)
        for level in range(int(levels.max(initial=0)) + 1):
            mine = levels == level
            found[mine] = np.maximum(most[self.begins[mine]], most[self.ends[mine] - (1 << level)])
            later = most[1 << level :]
            most = np.maximum(most[: len(later)], later)
        return found


def pack_greedily(given: SizedBuffers, target: int, *, work: int, seed: int) -> Numbers:
    """Return the offsets of the lowest packing found; the first that is at most `target` high is the answer.

    `work` bounds the rounds behind the orders as it bounds the exact method.
    """
    run = _GreedyRun(given)
    for order, both in given.orders():
        for smallest in (False, True)[: 1 + both]:
            run.pack(order, smallest)
            if run.height <= target:
                return run.best
    chance, order, offsets, before = np.random.default_rng(seed), run.order, run.best, run.looks
    for _ in range(ROUNDS):
        if run.height <= target or run.looks - before > work * LOOKS:
            break
        places = np.arange(len(order), dtype=float)
        late = (offsets + given.sizes)[order] > target
        places[late] = places[late] * chance.random(int(late.sum())) - 0.5
        order = order[np.argsort(places, kind="stable")]
        offsets = run.pack(order, run.smallest, whole=True)
    return run.best


class _GreedyRun:
    """Packs again and again: `best` is the lowest packing so far, made of `order`, `looks` what all took."""

    def __init__(self, given: SizedBuffers) -> None:
        self.given, self.looks, self.height = given, 0, inf
        self.best, self.order, self.smallest = given.sizes, given.begins, False
        self._free = np.array([i not in given.fixed for i in range(len(given.sizes))], dtype=bool)
        alignments = array("q", [b.alignment for b in given.buffers]).tobytes()
        self._problem = given.sizes.tobytes(), alignments, lists_of(given.lives)

    def pack(self, order: Numbers, smallest: bool, *, whole: bool = False) -> Numbers:
        """Return the offsets of all buffers, those of `order` that are not fixed put one after the other.

        Unless the `whole` is wanted it ends where it cannot be the best any more.
        """
        memory, offsets = packer_functions.first_fit(*self._problem), np.zeros_like(self.given.sizes)
        for index, at in self.given.fixed.items():
            packer_functions.lay(memory, index, at)
            offsets[index] = at
        height, looks, free = self.given.height(offsets), 0, order[self._free[order]]
        for start in range(0, len(free), AT_ONCE):
            some = free[start : start + AT_ONCE]
            answer = packer_functions.put(memory, some.astype(np.int32).tobytes(), smallest)
            looks, offsets[some] = (found := np.frombuffer(answer, dtype=np.int64))[0], found[1:]
            height = max(height, int((offsets[some] + self.given.sizes[some]).max()))
            if height >= self.height and not whole:
                break
        self.looks += int(looks)
        if height < self.height:
            self.height, self.best, self.order, self.smallest = height, offsets, order, smallest
        return offsets
