"""The fewest arenas that keep a call within its limit, by a search through all ways to share them.

An arena counts as large as what is live at once in it, which no plan can undercut, and bindings are added
until none breaks what was found: where nothing is found, no plan with so many arenas keeps the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from symalloc.planner.buffers.call_bytes import CallBytes
from symalloc.planner.grid import Values

FIRST = 3  # bindings that a search starts from


def fewest(held: CallBytes, most: int) -> tuple[int, bool]:
    """Return the fewest arenas that keep the limit, and True; or so many that fewer do not, and False, where
    `most` states do not tell more.
    """
    count = 1
    while True:
        try:
            if sharing(held, count, most) is not None:
                return count, True
        except TooManyError:
            return count, False
        count += 1


class TooManyError(Exception):
    """The search looked at as many states as it may."""


class Group(NamedTuple):
    """Buffers that share memory: what is live of them at each position, the most of that, and the steps at
    which it is held; `fixed` is the memory of a result, which does not grow.
    """

    members: tuple[int, ...]
    load: Values
    height: Values
    span: tuple[int, int]
    fixed: bool


def sharing(held: CallBytes, count: int, most: int) -> list[list[int]] | None:
    """Return the members of each arena, and of each result's memory, where `count` arenas keep the limit of a
    function without Ifs; None where they do not.  Raises TooManyError beyond `most` states.
    """
    bindings = list(range(0, len(held.table.grid), max(len(held.table.grid) // FIRST, 1)))
    while True:
        found = Sharing(held, count, most, bindings).search()
        if found is None:
            return None
        results = [group for group in found if held.steps.buffers[group[0]].returned]
        grown = [held.height(group) > held.bytes[group[0]] + 0.5 for group in results]
        broken = np.logical_or.reduce([held.over(found) > 1, *grown])
        if not broken.any():
            return found
        bindings.append(int(np.argmax(broken)))


@dataclass
class Sharing:
    """The search at some bindings, in the order in which buffers are made."""

    held: CallBytes
    count: int
    most: int
    bindings: Sequence[int]
    failed: set[object] = field(default_factory=set)

    def __post_init__(self) -> None:
        held, steps = self.held, self.held.steps
        self.steps, self.bytes = steps, held.bytes[:, self.bindings]
        self.room = held.room[:, self.bindings] + 0.5
        own = [i for i, buffer in enumerate(steps.buffers) if not buffer.returned]
        self.order = sorted(own, key=lambda i: (steps.begins[i], i))

    def search(self) -> list[list[int]] | None:
        """The members of each group; None where there is no way."""
        results = [i for i, buffer in enumerate(self.steps.buffers) if buffer.returned]
        groups = [self.alone(i, fixed=True) for i in results]
        total = np.zeros_like(self.room)
        for group in groups:
            total[slice(*group.span)] += group.height
        found = self.rest(0, groups, total)
        return None if found is None else [list(group.members) for group in found]

    def alone(self, i: int, *, fixed: bool = False) -> Group:
        load = np.zeros((self.steps.positions, len(self.bindings)))
        for begin, end in self.steps.buffers[i].live:
            load[begin:end] += self.bytes[i]
        spans = self.steps.spans[i]
        return Group((i,), load, self.bytes[i], (spans[0][0], spans[-1][1]), fixed)

    def joined(self, group: Group, i: int) -> Group | None:
        """The group with one more, None where it may not lie there."""
        one, members = self.alone(i), (*group.members, i)
        load = group.load + one.load
        height = np.maximum(group.height, load.max(axis=0))
        if not self.steps.may_share(members) or (group.fixed and (height > group.height + 0.5).any()):
            return None
        return Group(members, load, height, self.steps.reserved(members)[0], group.fixed)

    def rest(self, number: int, groups: list[Group], total: Values) -> list[Group] | None:
        if number == len(self.order):
            return groups
        i = self.order[number]
        begin = self.steps.buffers[i].live[0][0]
        kinds = (
            (g.height.tobytes(), g.span, g.load[begin:].tobytes(), g.fixed, self.kind(g)) for g in groups
        )
        state = number, total.tobytes(), tuple(sorted(kinds, key=hash))
        if state in self.failed:
            return None
        if len(self.failed) >= self.most:
            raise TooManyError
        for _, following, held in sorted(self.ways(i, groups, total), key=lambda way: way[0]):
            found = self.rest(number + 1, following, held)
            if found is not None:
                return found
        self.failed.add(state)
        return None

    def kind(self, group: Group) -> object:
        """What tells which others may join a group."""
        late = self.steps.has_late_sizes
        return group.members if late else self.steps.kinds[group.members[0]]

    def ways(self, i: int, groups: list[Group], total: Values) -> Iterator[tuple[float, list[Group], Values]]:
        """The groups with one more buffer in one of them, or in one of its own; by how much more is held."""
        for number, group in enumerate(groups):
            joined = self.joined(group, i)
            if joined is not None:
                yield from self.held_by(groups, number, joined, total, group)
        if sum(not group.fixed for group in groups) < self.count:
            yield from self.held_by(groups, len(groups), self.alone(i), total, None)

    def held_by(
        self, groups: list[Group], number: int, group: Group, total: Values, before: Group | None
    ) -> Iterator[tuple[float, list[Group], Values]]:
        held = total.copy()
        if before is not None:
            held[slice(*before.span)] -= before.height
        held[slice(*group.span)] += group.height
        if not (held > self.room).any():
            yield float((held - total).sum()), [*groups[:number], group, *groups[number + 1 :]], held
