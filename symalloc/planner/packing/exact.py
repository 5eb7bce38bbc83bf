"""The exact method for problems of fixed sizes: pack within a capacity, or as low as can be found, and say
whether that is proved.

Dynamic storage allocation: each buffer has a size in bytes and a live range; buffers that are live together
must not share a byte.  It is NP-hard (Garey and Johnson 1979, SR2).  The native library searches
(native/packer/search.h); here the attempts are made: several orders and rules, more and more steps, some
chance.  Restarts follow Luby, Sinclair and Zuckerman (1993): run times of such searches are heavy-tailed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import gcd
from operator import add
from random import Random
from typing import Literal, TypeAlias

from symalloc.native.flat_lists import lists_of
from symalloc.native.native_functions import packer_functions
from symalloc.planner.interference import live_sets
from symalloc.planner.memory_plan import Buffer

Rule: TypeAlias = Literal["lowest", "contested"]

STEPS = (
    800  # of the shortest attempt; what ends sooner counts as much, for to order its buffers takes as long
)
NOISE = 0.2  # how far, as a share of all buffers, chance moves a buffer up
FORGET = 0.5  # the part of the weights of failures that is left in the next attempt
SLICE = 500  # steps at a time; Python hears of an interrupt only between them
ROUND = 1600  # steps of the first round on each height tried
RULES: tuple[Rule, ...] = ("lowest", "lowest", "lowest", "contested")
_NUMBERS: dict[Rule, int] = {"lowest": 0, "contested": 1}  # in the native library


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
    steps: int | None = None,
) -> ExactPacking:
    """Pack `buffers` within `capacity` bytes or, where that is None, lower than with the offsets `start`.

    Their sizes are constants.  The search ends when the answer is final, or after about `steps` steps (no
    limit where None); the same `seed` gives the same answer.
    """
    instance = CliqueInstance.of(buffers)
    floor = instance.floor
    if capacity is not None and capacity < floor:
        return ExactPacking(offsets=None, height=floor, optimal=True, steps=0)
    sizes = [b.size.evaluate({}) for b in buffers]
    grain = gcd(*sizes, *(b.alignment for b in buffers)) or 1
    run = _PackingRun(
        sizes=sizes,
        instance=instance,
        seed=seed,
        most=steps,
        grain=grain,
        floor=-(-floor // grain) * grain,
        best=list(start),
        height=max(map(add, start, sizes), default=0),
    )
    return run.lowest() if capacity is None else run.within(capacity)


def steps_within(work: int, neighbours: Sequence[Sequence[int]]) -> int:
    """Return the steps of `pack_exactly` that cost `work`: one costs as much as a buffer has neighbours."""
    return work * len(neighbours) // max(sum(map(len, neighbours)), len(neighbours), 1)


@dataclass(slots=True, kw_only=True)
class _PackingRun:
    """One call of `pack_exactly`.

    Invariant:  `best` is the lowest packing so far, `height` its height; no packing is lower than `floor`;
    all heights worth trying are multiples of `grain`.
    """

    sizes: Sequence[int]
    instance: CliqueInstance
    seed: int
    most: int | None
    grain: int
    floor: int
    best: list[int]
    height: int
    steps: int = 0

    def within(self, capacity: int) -> ExactPacking:
        """Searches for a packing within `capacity` bytes."""
        if self.height > capacity:
            outcome = self.attempt(Attempts(self.instance, capacity, self.seed), None)
            if outcome is not SearchOutcome.FOUND:
                proved = outcome is SearchOutcome.NONE
                floor = max(self.floor, capacity + 1) if proved else self.floor
                return ExactPacking(offsets=None, height=floor, optimal=proved, steps=self.steps)
        return ExactPacking(offsets=self.best, height=self.height, optimal=True, steps=self.steps)

    def lowest(self) -> ExactPacking:
        """Searches for the lowest packing: tries heights between the floor and the best in rounds, each with
        twice the steps of the one before where that found nothing.
        """
        open_: dict[int, Attempts] = {}
        limit = ROUND
        while self.floor < self.height and not self.is_over():
            for height in self.heights():
                if height not in open_:
                    open_[height] = Attempts(self.instance, height, self.seed)
                outcome = self.attempt(open_[height], limit)
                if outcome is SearchOutcome.NONE:
                    self.floor = height + self.grain
                if outcome is not SearchOutcome.CUT:
                    break
            else:
                limit *= 2
        return ExactPacking(
            offsets=self.best, height=self.height, optimal=self.floor >= self.height, steps=self.steps
        )

    def heights(self) -> Iterable[int]:
        """Heights in bytes that would be better than the best: the floor first, then less and less ambitious
        ones.
        """
        gap = (self.height - self.floor) // self.grain
        return dict.fromkeys(self.floor + gap // part * self.grain for part in (gap + 1, 8, 4, 2))

    def attempt(self, attempts: Attempts, limit: int | None) -> SearchOutcome:
        """Goes on with `attempts` for `limit` steps and takes what it finds."""
        before = attempts.steps
        left = None if self.most is None else self.most - self.steps
        limit = min((n for n in (limit, left) if n is not None), default=None)
        outcome = attempts.run(limit=limit)
        self.steps += attempts.steps - before
        if outcome is SearchOutcome.FOUND:
            found = attempts.offsets
            self.best = [found.get(i, 0) for i in range(len(self.sizes))]
            self.height = max(map(add, self.best, self.sizes), default=0)
        return outcome

    def is_over(self) -> bool:
        return self.most is not None and self.steps >= self.most


class Attempts:
    """Attempts to pack `instance` within `capacity` bytes, which hold each buffer by itself; the same seed
    makes the same attempts.  Raises MemoryError.

    `steps` counts what they cost: nodes of the search, but at least `STEPS` for each.  What fails once is
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
            _int64((capacity - nbytes) // instance.unit for nbytes in instance.nbytes),
            lists_of(instance.cliques),
            lists_of(instance.members),
            lists_of(instance.neighbours),
        )

    @property
    def offsets(self) -> dict[int, int]:
        """Offsets in bytes by id: the packing, where the last attempt found one."""
        offsets = array("q", packer_functions.offsets(self._search))
        return {id_: self.instance.unit * at for id_, at in zip(self.instance.ids, offsets, strict=True)}

    def run(self, *, limit: int | None = None) -> SearchOutcome:
        """Go on for about `limit` more steps (no end where None)."""
        end = None if limit is None else self.steps + limit
        outcome = SearchOutcome.CUT
        while outcome is SearchOutcome.CUT and (end is None or self.steps < end):
            priorities, rule, steps = next(self._plans)
            before = packer_functions.steps(self._search)
            outcome = self.attempt(priorities, rule, before + steps)
            self.steps += max(packer_functions.steps(self._search) - before, STEPS)
        return outcome

    def attempt(self, priorities: Sequence[int], rule: Rule, last: int) -> SearchOutcome:
        """Search anew until step `last`: of the buffers that may come next, the one of the highest priority
        is tried first.
        """
        packer_functions.begin(self._search, array("i", priorities).tobytes(), _NUMBERS[rule], FORGET)
        outcome = SearchOutcome.CUT
        while outcome is SearchOutcome.CUT and (left := last - packer_functions.steps(self._search)) > 0:
            outcome = SearchOutcome(packer_functions.go(self._search, min(SLICE, left)))
        return outcome


def _int64(numbers: Iterable[int]) -> bytes:
    return array("q", numbers).tobytes()


def luby(number: int) -> int:
    """The `number`-th term (from 1) of 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 …"""
    while (number + 1) & number:
        number -= (1 << (number.bit_length() - 1)) - 1
    return (number + 1) >> 1


def _plans(instance: CliqueInstance, chance: Random) -> Iterator[tuple[list[int], Rule, int]]:
    """Priorities, rule and number of steps of one attempt after another."""
    orders, number = _orders(instance), 0
    while True:
        turn, place = divmod(number, len(RULES))
        ranks = orders[(number + turn) % len(orders)]
        noise = NOISE * len(ranks) if turn else 0.0
        moved = [rank + noise * chance.random() for rank in ranks]
        yield _ranks(len(ranks), moved.__getitem__), RULES[place], STEPS * luby(number + 1)
        number += 1


def _orders(instance: CliqueInstance) -> list[list[int]]:
    """Ranks by area, by how many cliques a buffer is in, by the fullest clique it is in, and by size."""
    sizes, durations = instance.sizes, instance.durations
    full = [sum(sizes[i] for i in members) for members in instance.members]
    scores: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (sizes[i] * durations[i],),
        lambda i: (len(instance.cliques[i]), sizes[i]),
        lambda i: (max(full[c] for c in instance.cliques[i]), sizes[i] * durations[i]),
        lambda i: (sizes[i],),
    )
    return [_ranks(len(sizes), score) for score in scores]


def _ranks(count: int, score: Callable[[int], float | tuple[int, ...]]) -> list[int]:
    """The place of each of `count` buffers in the order of `score`, the least first."""
    ranks = [0] * count
    for rank, buffer in enumerate(sorted(range(count), key=score)):
        ranks[buffer] = rank
    return ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class CliqueInstance:
    """A problem with its buffers numbered 0, 1, … in the order of their first clique, in units.

    `ids` are the indices of these buffers in the sequence that was given; buffers of no size and those that
    are never live are left out.  A unit is the greatest common divisor of the alignments, in bytes; every
    offset is a multiple of it, so `sizes` are rounded up to it.  `members` lists for each clique (a maximal
    set of buffers live at one position) its buffers, `cliques` the other way round.
    """

    ids: tuple[int, ...]
    unit: int
    nbytes: tuple[int, ...]
    sizes: tuple[int, ...]
    alignments: tuple[int, ...]
    durations: tuple[int, ...]
    cliques: tuple[tuple[int, ...], ...]
    members: tuple[tuple[int, ...], ...]
    neighbours: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, buffers: Sequence[Buffer]) -> CliqueInstance:
        """Return the instance of `buffers`, whose sizes are constants."""
        sized = [b.live if b.size.evaluate({}) else () for b in buffers]
        together = _maximal(map(frozenset, live_sets(sized)))
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
        unit = gcd(*(b.alignment for b in ordered)) or 1
        return cls(
            ids=tuple(ids),
            unit=unit,
            nbytes=nbytes,
            sizes=tuple(-(-size // unit) for size in nbytes),
            alignments=tuple(b.alignment // unit for b in ordered),
            durations=tuple(sum(end - begin for begin, end in b.live) for b in ordered),
            cliques=inside,
            members=members,
            neighbours=tuple(
                tuple(sorted({j for c in mine for j in members[c]} - {i})) for i, mine in enumerate(inside)
            ),
        )

    @property
    def floor(self) -> int:
        """A lower bound of the height in bytes: the largest sum of sizes in one clique.

        Where all share an alignment every buffer but the topmost takes its size rounded up to it.
        """
        unit = self.unit if set(self.alignments) <= {1} else 1
        return max((_stacked([self.nbytes[i] for i in group], unit) for group in self.members), default=0)


def align_up(nbytes: int, alignment: int) -> int:
    """Return the least multiple of `alignment` that is not below `nbytes`."""
    return -(-nbytes // alignment) * alignment


def _stacked(sizes: Sequence[int], step: int) -> int:
    rounded = [align_up(size, step) for size in sizes]
    return sum(rounded) - max(r - s for r, s in zip(rounded, sizes, strict=True))


def _maximal(sets: Iterable[frozenset[int]]) -> tuple[frozenset[int], ...]:
    """Drop the sets that are within another, and repetitions; keep the order."""
    unique = tuple(dict.fromkeys(s for s in sets if s))
    holding: dict[int, list[frozenset[int]]] = {}
    for s in unique:
        for id_ in s:
            holding.setdefault(id_, []).append(s)
    return tuple(s for s in unique if not any(s < other for other in holding[next(iter(s))]))
