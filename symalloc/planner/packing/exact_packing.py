"""Packs buffers whose sizes are known as low as possible: an exact search in the native library, begun anew
again and again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import gcd, inf
from operator import add
from random import Random

from symalloc.native.flat_lists import lists_of
from symalloc.native.native_functions import packer_functions
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
