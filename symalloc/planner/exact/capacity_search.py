"""Depth-first search over partial packings, with decomposition by time and a memory of what has failed.

Which clique is decided next, by rule.  "lowest": one with a single buffer that can come next, then the
lowest, then the one that has been the reason of most failures.  "contested": the one with the fewest such
buffers per failure (dom/wdeg: Boussemart and others 2004).
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Sequence
from enum import Enum
from hashlib import blake2b
from typing import Literal, TypeAlias

from symalloc.planner.exact.clique_instance import CliqueInstance
from symalloc.planner.exact.state import SearchState

Rule: TypeAlias = Literal["lowest", "contested"]
_Parts: TypeAlias = list[tuple[int, ...]]
_Solving: TypeAlias = Generator[tuple[int, ...], bool, bool]
FORGET = 0.5  # what is left of the weights of failures in the next attempt
UNTRIED = 0.01  # the weight of a clique that has never failed
MOST_REMEMBERED = 1 << 20  # 16 bytes each, and the set's own


class SearchOutcome(Enum):
    """The ways in which a search ends: `CUT` by its limit."""

    FOUND = "found"
    NONE = "none"
    CUT = "cut"


class _SearchLimitError(Exception):
    """The steps allowed are used up."""


class CapacitySearch:
    """Looks for a packing of `instance` within `capacity` bytes, in as many attempts as it is asked for.

    What fails once is remembered from one attempt to the next.
    """

    def __init__(self, instance: CliqueInstance, capacity: int) -> None:
        self.instance = instance
        self.state = SearchState(instance, capacity)
        self.steps = 0
        self._failed: set[bytes] = set()

    @property
    def offsets(self) -> dict[int, int]:
        """Offsets in bytes by id: the packing, where the last attempt found one."""
        unit = self.instance.unit
        return {id_: unit * at for id_, at in zip(self.instance.ids, self.state.lowest, strict=True)}

    def attempt(self, *, priorities: Sequence[int], rule: Rule, limit: int) -> SearchOutcome:
        """Searches on for at most `limit` steps.

        Of the buffers that may come next at the place chosen, the one of the highest priority is tried
        first; priorities are all different.
        """
        self._priorities, self._rule = priorities, rule
        self._last = self.steps + limit
        self.state.weights = [FORGET * weight for weight in self.state.weights]
        self.state.clear()
        everything = tuple(range(len(self.instance.ids)))
        try:
            found = self.state.propagate() and self._run(everything)
        except _SearchLimitError:
            return SearchOutcome.CUT
        return SearchOutcome.FOUND if found else SearchOutcome.NONE

    def _run(self, everything: tuple[int, ...]) -> bool:
        """Runs `_solve` with a stack of its own: problems are deeper than Python's."""
        stack = [self._solve(everything)]
        answer: bool | None = None
        while stack:
            try:
                part = next(stack[-1]) if answer is None else stack[-1].send(answer)
            except StopIteration as stop:
                answer = bool(stop.value)
                stack.pop()
            else:
                answer = None
                stack.append(self._solve(part))
        return bool(answer)

    def _solve(self, left: tuple[int, ...]) -> _Solving:
        """Places all of `left`, or says False; yields the parts that have to be solved on the way."""
        parts = self._split(left)
        if len(parts) != 1:
            for part in parts:
                if not (yield part):
                    return False
            return True
        state, tried = self.state, []
        while len(left) > 1:
            key = self._key(left)
            if key in self._failed:
                break
            tried.append(key)
            self._count_step()
            buffer = self._choose(left)
            kept = state.snapshot()
            if state.place(buffer) and (yield tuple(i for i in left if i != buffer)):
                return True
            state.restore(kept)
            if not state.exclude(buffer):
                break
        else:
            return True
        self._remember(tried)
        return False

    def _split(self, left: tuple[int, ...]) -> _Parts:
        """`left` in parts that no position joins, the smallest first."""
        cliques = self.instance.cliques
        parts: list[list[int]] = []
        end = -1
        for buffer in left:
            mine = cliques[buffer]
            if mine[0] > end:
                parts.append([])
            parts[-1].append(buffer)
            if mine[-1] > end:
                end = mine[-1]
        return sorted(map(tuple, parts), key=len)

    def _choose(self, left: tuple[int, ...]) -> int:
        """The buffer to decide next: the first choice at the most pressing clique, or what fits below it."""
        state, priorities = self.state, self._priorities
        first, last = self.instance.cliques[left[0]][0], max(self.instance.cliques[i][-1] for i in left)
        clique = self._most_pressing(first, last)
        floor = state.floors[clique]
        chosen = max(
            (i for i in state.members[clique] if state.lowest[i] == floor), key=priorities.__getitem__
        )
        while not state.can_be_decided(chosen):
            at = state.lowest[chosen]
            chosen = min(
                (i for i in self.instance.neighbours[chosen] if not state.placed[i] and state.ends[i] <= at),
                key=lambda i: (state.lowest[i], -priorities[i]),
            )
        return chosen

    def _most_pressing(self, first: int, last: int) -> int:
        """The clique to go on with, of those from `first` to `last` that have members left."""
        choices, floors, weights = self.state.choices, self.state.floors, self.state.weights
        members = self.state.members
        cliques = (c for c in range(first, last + 1) if members[c])
        if self._rule == "contested":
            return min(cliques, key=lambda c: choices[c] / (weights[c] + UNTRIED))
        return min(cliques, key=lambda c: (choices[c] > 1, floors[c], -weights[c]))

    def _key(self, left: tuple[int, ...]) -> bytes:
        """Return a digest of all that the rest of the search depends on."""
        lowest = self.state.lowest
        return blake2b(array("q", [*left, *(lowest[i] for i in left)]), digest_size=16).digest()

    def _remember(self, keys: Sequence[bytes]) -> None:
        if len(self._failed) < MOST_REMEMBERED:
            self._failed.update(keys)

    def _count_step(self) -> None:
        if self.steps >= self._last:
            raise _SearchLimitError
        self.steps += 1
