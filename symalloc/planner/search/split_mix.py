"""The generator of the local search's chance: `native/packer/split_mix.h` draws the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")

WORD = (1 << 64) - 1


class SplitMix64:
    """SplitMix64 of Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators (2014)."""

    def __init__(self, seed: int) -> None:
        """Take the last 64 bits of `seed`."""
        self._state = seed & WORD

    def next(self) -> int:
        """Return the next 64 bits."""
        self._state = x = (self._state + 0x9E3779B97F4A7C15) & WORD
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & WORD
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & WORD
        return x ^ (x >> 31)

    def random(self) -> float:
        """Return a number from 0 to below 1."""
        return (self.next() >> 11) * 2.0**-53

    def below(self, count: int) -> int:
        """Return an integer from 0 to below `count`, which is at most 2**32."""
        return ((self.next() >> 32) * count) >> 32

    def choice(self, items: Sequence[T]) -> T:
        """Return one of `items`."""
        return items[self.below(len(items))]

    def weighted(self, weights: Sequence[float]) -> int:
        """Return an index, each as likely as its weight says."""
        sums = list(accumulate(weights))
        drawn = self.random() * sums[-1]
        return next((i for i, end in enumerate(sums) if drawn < end), len(sums) - 1)

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Return `count` of `items`, none twice."""
        left = list(items)
        for place in range(count):
            other = place + self.below(len(left) - place)
            left[place], left[other] = left[other], left[place]
        return left[:count]
