"""Sums of sizes over the columns for which each is held, as arrays: there are few distinct sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from symalloc.planner.grid import Values, matrix_product

Numbers: TypeAlias = NDArray[np.int64]

MOST_KINDS = 64  # distinct sizes whose counts at each column are multiplied by them


@dataclass(frozen=True, slots=True)
class HeldColumns:
    """The columns [begins, ends) for which each of some things is held, which may be none or several
    stretches: those of thing i are at the places [firsts[i], firsts[i + 1]).
    """

    firsts: Numbers
    begins: Numbers
    ends: Numbers

    @classmethod
    def of(cls, held: Sequence[Sequence[tuple[int, int, int]]]) -> HeldColumns:
        """Return those of each of `held`, given as (path, begin, end)."""
        firsts = np.zeros(len(held) + 1, dtype=np.int64)
        np.cumsum([len(spans) for spans in held], out=firsts[1:])
        flat = np.array([one for spans in held for one in spans], dtype=np.int64).reshape(-1, 3)
        return cls(firsts, flat[:, 1], flat[:, 2])

    @classmethod
    def between(cls, starts: Sequence[float], begins: Sequence[float], ends: Sequence[float]) -> HeldColumns:
        """Return those of things that are each held for one stretch between two moments, where columns begin
        at the moments `starts`.
        """
        at = np.array(starts)
        places = np.arange(len(begins) + 1)
        return cls(places, np.searchsorted(at, begins), np.searchsorted(at, ends))

    def chosen(self, members: Numbers) -> tuple[Numbers, Numbers]:
        """Return the places of some things, one after the other, and to which of them each belongs."""
        counts = self.firsts[members + 1] - self.firsts[members]
        owners = np.repeat(np.arange(len(members)), counts)
        before = np.cumsum(counts) - counts
        return np.arange(len(owners)) + (self.firsts[members] - before)[owners], owners

    def single(self, members: Numbers) -> tuple[Numbers, Numbers]:
        """Return the begins and the ends of some things, each of which is held for one stretch."""
        places = self.firsts[members]
        return self.begins[places], self.ends[places]

    def bounds(self, members: Numbers) -> tuple[int, int]:
        """Return the columns [first, last) that hold all those of some things."""
        places, _ = self.chosen(members)
        return (int(self.begins[places].min()), int(self.ends[places].max())) if len(places) else (0, 0)


def held_sums(begins: Numbers, ends: Numbers, kinds: Numbers, sizes: Values, count: int) -> Values:
    """Return the sum of sizes at each of `count` columns: a row of `sizes`, by its kind, while it is held."""
    used = np.flatnonzero(np.bincount(kinds, minlength=len(sizes)))
    if len(used) > MOST_KINDS:
        changes = np.zeros((count + 1, sizes.shape[1]))
        np.add.at(changes, begins, sizes[kinds])
        np.subtract.at(changes, ends, sizes[kinds])
        found: Values = changes.cumsum(axis=0)[:-1]
        return found
    number = np.zeros(len(sizes), dtype=np.int64)
    number[used] = np.arange(len(used))
    return matrix_product(_counts(begins, ends, number[kinds], len(used), count), sizes[used])


def _counts(begins: Numbers, ends: Numbers, kinds: Numbers, width: int, count: int) -> Values:
    """Return how many of each kind are held at each column."""
    most = (count + 1) * width
    begun = np.bincount(begins * width + kinds, minlength=most)
    ended = np.bincount(ends * width + kinds, minlength=most)
    changes = (begun - ended).reshape(count + 1, width)
    found: Values = np.cumsum(changes, axis=0, dtype=np.float64)[:-1]
    return found
