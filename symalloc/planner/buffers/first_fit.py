"""Group tensors one by one, each into the arena that grows least, where the call stays within its limit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symalloc.planner.buffers.call_timeline import CallTimeline, Held
from symalloc.planner.search.grid import Values

MOST_TRIED = 8  # arenas that one tensor is tried in, the latest first


def first_fit(
    memory: CallTimeline, planned: Sequence[int], results: Sequence[int], hosts: Sequence[int]
) -> list[list[int]]:
    """Return groups that keep the limit, the results first; what comes later counts as lying in none."""
    fit = _FirstFit(memory, planned, results, hosts)
    for i in sorted(planned, key=lambda i: (memory.tenants[i].made, i)):
        fit.enter(i)
    return [[group.members[0], *sorted(group.members[1:])] for group in fit.groups]


class _Group:
    def __init__(self, memory: CallTimeline, first: int, *, open_to: bool) -> None:
        self.members, self.kept, self.open = [first], memory.tenants[first].kept, open_to
        self.load = memory.load([first])
        self.height: Values = memory.bytes[first]
        self.spans: tuple[Held, ...] = memory.held[first]


class _FirstFit:
    def __init__(
        self, memory: CallTimeline, planned: Sequence[int], results: Sequence[int], hosts: Sequence[int]
    ) -> None:
        self.memory = memory
        self.groups = [_Group(memory, result, open_to=result in hosts) for result in results]
        self.room = memory.limit - memory.taken([*([i] for i in results), *([i] for i in planned)])

    def enter(self, i: int) -> None:
        """Put a tensor into the group that grows least by it, or into one of its own."""
        best: tuple[float, _Group, Values, tuple[Held, ...]] | None = None
        tried = 0
        for group in reversed(self.groups):
            if not group.open or tried == MOST_TRIED:
                continue
            tried += 1
            found = self.joined(group, i)
            if found is not None and (best is None or found[0] < best[0]):
                best = (found[0], group, found[1], found[2])
                if found[0] <= 0:
                    break
        if best is None:
            self.groups.append(_Group(self.memory, i, open_to=True))
            return
        _, group, height, spans = best
        self.change(group, i, height, spans)
        group.members.append(i)
        for _, begin, end in self.memory.held[i]:
            group.load[begin:end] += self.memory.bytes[i]
        group.height, group.spans = height, spans

    def joined(self, group: _Group, i: int) -> tuple[float, Values, tuple[Held, ...]] | None:
        """By how much the group would grow, its height and spans then; None where that takes too much."""
        memory, size = self.memory, self.memory.bytes[i]
        height = group.height
        for _, begin, end in memory.held[i]:
            height = np.maximum(height, (group.load[begin:end] + size).max(axis=0, initial=0.0))
        if group.kept and (height > group.height + 0.5).any():
            return None
        if group.kept and not self.before(group, i):
            return None
        members = [*group.members, i]
        if not memory.possible(members):
            return None
        spans = memory.reserved(members)
        change = self.changed(group, i, height, spans)
        if any((more > self.room[begin:end] + 0.5).any() for (begin, end), more in change):
            return None
        return float((height - group.height).sum()), height, spans

    def before(self, group: _Group, i: int) -> bool:
        """Return whether a tensor ends before the result whose memory the group lies in is made."""
        starts = {path: begin for path, begin, _ in self.memory.held[group.members[0]]}
        return all(end <= starts.get(path, end) for path, _, end in self.memory.held[i])

    def changed(
        self, group: _Group, i: int, height: Values, spans: Sequence[Held]
    ) -> list[tuple[tuple[int, int], Values]]:
        """The bytes that are taken more, by range of columns, where a tensor joins a group."""
        memory = self.memory
        before = {path: (begin, end) for path, begin, end in group.spans}
        alone = {path: (begin, end) for path, begin, end in memory.held[i]}
        found = []
        for path, begin, end in spans:
            more = np.tile(height, (end - begin, 1))
            for (first, last), size in (
                (before.get(path, (0, 0)), group.height),
                (alone.get(path, (0, 0)), memory.bytes[i]),
            ):
                if first < last:
                    more[first - begin : last - begin] -= size
            found.append(((begin, end), more))
        return found

    def change(self, group: _Group, i: int, height: Values, spans: Sequence[Held]) -> None:
        for (begin, end), more in self.changed(group, i, height, spans):
            self.room[begin:end] -= more
