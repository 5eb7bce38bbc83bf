"""Packs buffers whose sizes are known one after the other, each into the lowest gap or the smallest one, in
many orders; then again and again, what came to lie too high sooner (squeaky wheel optimization: Joslin and
Clements 1999).

The native library looks at what lies there already, at some 1e9 buffers a second: no pair is ever stored.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from symalloc.native.flat_lists import lists_of
from symalloc.native.native_functions import packer_functions
from symalloc.planner.memory_plan import Buffer

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
