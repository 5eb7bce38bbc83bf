"""Packs static problems: within a capacity, or as low as can be found, saying whether that is proved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from operator import add
from typing import TypeAlias

from symalloc.native.library import load_library
from symalloc.planner.exact.attempts import Attempts
from symalloc.planner.exact.capacity_search import SearchOutcome
from symalloc.planner.exact.clique_instance import CliqueInstance, align_up
from symalloc.planner.memory_plan import Buffer

ChoosePlace: TypeAlias = Callable[[int, Sequence[tuple[int, int]]], int]

ROUND = 1600  # steps of the first round on each height tried


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactPacking:
    """The answer to a static packing problem.

    `offsets` are bytes, in the order of the buffers; None where nothing was found within the capacity.
    `height` is theirs, in bytes; without offsets it is a proved lower bound of the height.  `optimal`:
    without a capacity, no packing is lower; with one, the answer is final: it fits, or it is proved that none
    does.  `steps` counts the buffers placed by first fit and the nodes of the search.
    """

    offsets: list[int] | None
    height: int
    optimal: bool
    steps: int


def pack_exactly(
    buffers: Sequence[Buffer],
    neighbours: Sequence[Sequence[int]],
    *,
    capacity: int | None,
    seed: int = 0,
    steps: int | None = None,
) -> ExactPacking:
    """Pack `buffers` within `capacity` bytes or, where that is None, as low as can be.

    Their sizes are constants; `neighbours` is `interference(buffers)`.  The search ends when the answer is
    final, or after about `steps` steps (no limit where None); the same `seed` gives the same answer.
    """
    instance = CliqueInstance.of(buffers)
    floor = instance.floor
    if capacity is not None and capacity < floor:
        return ExactPacking(offsets=None, height=floor, optimal=True, steps=0)
    sizes = [b.size.evaluate({}) for b in buffers]
    grain = gcd(*sizes, *(b.alignment for b in buffers)) or 1
    run = _PackingRun(
        buffers=buffers,
        sizes=sizes,
        instance=instance,
        seed=seed,
        most=steps,
        grain=grain,
        floor=-(-floor // grain) * grain,
    )
    run.start(neighbours, floor if capacity is None else capacity)
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

    buffers: Sequence[Buffer]
    sizes: Sequence[int]
    instance: CliqueInstance
    seed: int
    most: int | None
    grain: int
    floor: int
    best: list[int] | None = None
    height: int = 0
    steps: int = 0

    def start(self, neighbours: Sequence[Sequence[int]], enough: int) -> None:
        """First fit, until a packing is no higher than `enough` bytes."""
        for offsets in _first_fits(self.buffers, neighbours):
            self.steps += len(self.buffers)
            self.take(offsets)
            if self.height <= enough:
                break

    def within(self, capacity: int) -> ExactPacking:
        """Searches for a packing within `capacity` bytes."""
        if self.height > capacity:
            outcome = self.attempt(self.attempts(capacity), None)
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
                    open_[height] = self.attempts(height)
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
            found = attempts.search.offsets
            self.take([found.get(i, 0) for i in range(len(self.buffers))])
        return outcome

    def attempts(self, capacity: int) -> Attempts:
        return Attempts(self.instance, capacity, self.seed, native=load_library() is None)

    def take(self, offsets: list[int]) -> None:
        height = max(map(add, offsets, self.sizes), default=0)
        if self.best is None or height < self.height:
            self.best, self.height = offsets, height

    def is_over(self) -> bool:
        return self.most is not None and self.steps >= self.most


# -- first fit ---------------------------------------------------------------------------------------------


def _first_fits(buffers: Sequence[Buffer], neighbours: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield offsets in bytes, one packing per order: largest first, longest first, largest area first, most
    bytes around it first, and the given order.
    """
    sizes = [b.size.evaluate({}) for b in buffers]
    durations = [sum(end - begin for begin, end in b.live) for b in buffers]
    orders: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (-sizes[i], -durations[i], i),
        lambda i: (-durations[i], -sizes[i], i),
        lambda i: (-sizes[i] * durations[i], i),
        lambda i: (-sum(sizes[j] for j in neighbours[i]), -sizes[i], i),
        lambda i: (),
    )

    def lowest(i: int, taken: Sequence[tuple[int, int]]) -> int:
        return lowest_place(sizes[i], taken, buffers[i].alignment)

    for order in orders:
        yield place_in_order(sorted(range(len(buffers)), key=order), sizes, neighbours, lowest)


def place_in_order(
    order: Iterable[int], sizes: Sequence[int], neighbours: Sequence[Sequence[int]], choose: ChoosePlace
) -> list[int]:
    """Put each buffer in turn where `choose` says, given the sorted stretches that its neighbours take."""
    offsets = [-1] * len(sizes)
    for i in order:
        taken = [(offsets[j], offsets[j] + sizes[j]) for j in neighbours[i] if offsets[j] >= 0]
        taken.sort()
        offsets[i] = choose(i, taken)
    return offsets


def lowest_place(size: int, taken: Iterable[tuple[int, int]], alignment: int = 1) -> int:
    """Return the lowest offset at which `size` bytes touch none of the sorted stretches `taken`."""
    place = 0
    for begin, end in taken:
        if begin >= place + size:
            break
        if end > place:
            place = align_up(end, alignment)
    return place
