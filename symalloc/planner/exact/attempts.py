"""Attempts at a packing: several orders and rules, more and more steps, some chance.

Restarts follow Luby, Sinclair and Zuckerman (1993): run times of such searches are heavy-tailed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from symalloc.planner.exact.capacity_search import CapacitySearch, Rule, SearchOutcome
from symalloc.planner.exact.clique_instance import CliqueInstance
from symalloc.planner.exact.native_search import NativeSearch, fits

STEPS = 800  # of the shortest attempt
LEAST_COUNTED = STEPS  # for an attempt, however soon it ends: to order its buffers takes as long
NOISE = 0.2  # how far, as a share of all buffers, chance moves a buffer up
RULES: tuple[Rule, ...] = ("lowest", "lowest", "lowest", "contested")


class Attempts:
    """Attempts to pack `instance` within `capacity` bytes; the same seed makes the same attempts.

    `steps` counts what they cost: nodes of the search, but at least `LEAST_COUNTED` for each.
    """

    def __init__(self, instance: CliqueInstance, capacity: int, seed: int, *, native: bool = False) -> None:
        """`native`: the native library is loaded; it searches, where the numbers fit it."""
        self.search: CapacitySearch | NativeSearch = (
            NativeSearch(instance, capacity)
            if native and fits(instance, capacity)
            else CapacitySearch(instance, capacity)
        )
        self.steps = 0
        self._plans = _plans(instance, Random(seed))

    def run(self, *, limit: int | None = None) -> SearchOutcome:
        """Goes on for about `limit` more steps (no end where None)."""
        end = None if limit is None else self.steps + limit
        outcome = SearchOutcome.CUT
        while outcome is SearchOutcome.CUT and (end is None or self.steps < end):
            priorities, rule, steps = next(self._plans)
            before = self.search.steps
            outcome = self.search.attempt(priorities=priorities, rule=rule, limit=steps)
            self.steps += max(self.search.steps - before, LEAST_COUNTED)
        return outcome


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
