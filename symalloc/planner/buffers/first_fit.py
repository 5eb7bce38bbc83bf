"""Group tensors one by one, each into the arena that grows least, where the call stays within its limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice

import numpy as np

from symalloc.planner.buffers.call_columns import Held
from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.search.grid import Values

FEW = 3
FEW_AT_ONCE = 4  # arenas that are looked at one by one
MOST_TRIED = 8  # arenas that one tensor is tried in, the latest first
MOST_WORK = 20_000_000  # sums of bytes at one column and binding, for a whole function
TRIAL = 2000  # what one trial of an arena counts, however short


def first_fit(
    memory: CallTimeline,
    planned: Sequence[int],
    results: Sequence[int],
    hosts: Sequence[int],
    groups: Sequence[Sequence[int]] = (),
) -> list[list[int]] | None:
    """Return groups that keep the limit, the results first, tensors taken in the order of the text.

    What comes later counts as lying in none: that keeps the limit.  `groups` are there already.  None where
    it is too much work.
    """
    fit = _FirstFit(memory, results, hosts, beside=planned, groups=groups)
    for i in sorted(planned, key=lambda i: (memory.tenants[i].made, i)):
        fit.enter(i)
        if fit.work > MOST_WORK:
            return None
    return fit.members()


def few_arenas(
    memory: CallTimeline, planned: Sequence[int], results: Sequence[int], hosts: Sequence[int]
) -> list[list[int]] | None:
    """Return at most FEW groups besides the results, large tensors first; None where that keeps no limit.

    Those come before that are live where one arena for all would be too much: they are to share one.
    """
    whole = memory.taken([*([i] for i in results), planned])
    crowded = np.logical_or.reduce(whole > memory.limit + 0.5, axis=1)
    before = [0, *accumulate(crowded.tolist())]  # the crowded columns in front of each
    fit = _FirstFit(memory, results, hosts, beside=())

    def rank(i: int) -> tuple[bool, float, int]:
        late = any(before[begin] < before[end] for _, begin, end in memory.held[i])
        return not late, -fit.shares[i], memory.tenants[i].made

    fit.spread = len(results) + FEW
    for i in sorted(planned, key=rank):
        if not fit.enter(i) or len(fit.groups) > len(results) + FEW or fit.work > MOST_WORK:
            return None
    return fit.members()


class _Group:
    def __init__(self, memory: CallTimeline, members: Sequence[int], *, open_to: bool) -> None:
        self.members, self.kept, self.open = list(members), memory.tenants[members[0]].kept, open_to
        self.load = memory.load(members)
        self.height: Values = memory.height(members)
        self.hold(memory, memory.reserved(members))

    def hold(self, memory: CallTimeline, spans: tuple[Held, ...]) -> None:
        """Hold the arena during `spans`: from the column `first` on one path, -1 where it is on none."""
        self.spans = spans
        self.first = next((begin for path, begin, _ in spans if path in memory.paths), -1)


class _FirstFit:
    """The groups so far; `beside` are tensors that count as lying in none until they are entered."""

    def __init__(
        self,
        memory: CallTimeline,
        results: Sequence[int],
        hosts: Sequence[int],
        *,
        beside: Sequence[int],
        groups: Sequence[Sequence[int]] = (),
    ) -> None:
        self.memory = memory
        self.groups = [_Group(memory, [result], open_to=result in hosts) for result in results]
        self.groups += (_Group(memory, group, open_to=True) for group in groups)
        there = [*groups, *([i] for i in beside)]
        self.room = memory.limit - memory.taken([*([i] for i in results), *there])
        self.spare = memory.floor - memory.own(there)  # what arenas may take more that lie in no result
        self.counted = frozenset(beside)
        self.spread = 0
        self.scale = memory.scale
        self.shares: list[float] = np.add.reduce(memory.bytes / memory.scale, axis=1).tolist()
        self.fine = min(self.room.min(initial=0.0), self.spare.min(initial=0.0)) >= -0.5
        self.work = 0

    def members(self) -> list[list[int]]:
        """The members of each group, the result first where it is the memory of one."""
        return [[group.members[0], *sorted(group.members[1:])] for group in self.groups]

    def enter(self, i: int) -> bool:
        """Put a tensor into the group that grows least by it, or into one of its own; return whether that
        keeps the limit.
        """
        best: tuple[float, _Group, Values, tuple[Held, ...]] | None = None
        tried = list(islice((group for group in reversed(self.groups) if group.open), MOST_TRIED))
        for group, full in zip(tried, self.full(tried, i), strict=True):
            self.work += TRIAL
            found = None if full else self.joined(group, i, np.inf if best is None else best[0])
            if found is not None:
                best = (found[0], group, found[1], found[2])
                if found[0] <= 0:
                    break
        if best is None or (len(self.groups) < self.spread and best[0] >= self.shares[i] - 1e-9):
            self.groups.append(_Group(self.memory, [i], open_to=True))
            return i in self.counted or self.alone(i)
        growth, group, height, spans = best
        if not self.unchanged(group, i, growth, spans):
            self.change(group, i, height, spans)
        group.members.append(i)
        for _, begin, end in self.memory.held[i]:
            part = group.load[begin:end]
            part += self.memory.bytes[i]
        group.height = height
        group.hold(self.memory, spans)
        return True

    def alone(self, i: int) -> bool:
        """Count a tensor that lies in no group; return whether there is room for it."""
        fine = True
        for _, begin, end in self.memory.held[i]:
            for room in (self.room, self.spare):
                room[begin:end] -= self.memory.bytes[i]
                fine = fine and not (room[begin:end] < -0.5).any()
        return fine

    def full(self, groups: Sequence[_Group], i: int) -> Sequence[bool]:
        """Return for each of some groups whether its arena cannot even become as large as a tensor where it
        is first held, and the tensor is not.
        """
        if sum(not group.kept for group in groups) < FEW_AT_ONCE:
            return [False] * len(groups)
        firsts = [group.first for group in groups]
        kept = np.array([group.kept for group in groups])
        left = np.where(kept[:, None], 0.0, np.minimum(self.room[firsts], self.spare[firsts]))
        more = self.memory.bytes[i] - np.array([group.height for group in groups])
        full = np.logical_or.reduce(more > left + 0.5, axis=1)
        held = self.memory.held[i]
        apart = (first >= 0 and not any(begin <= first < end for _, begin, end in held) for first in firsts)
        return [one and other for one, other in zip(full.tolist(), apart, strict=True)]

    def joined(self, group: _Group, i: int, less: float) -> tuple[float, Values, tuple[Held, ...]] | None:
        """By how much the group would grow, its height and spans then; None where that takes too much, or is
        not `less`.
        """
        memory, size = self.memory, self.memory.bytes[i]
        if group.kept and ((size > group.height + 0.5).any() or not self.before(group, i)):
            return None
        height = group.height
        if memory.held[i]:
            most = np.maximum.reduce(group.load[memory.columns.where(i)], axis=0, initial=0.0)
            height = np.maximum(height, most + size)
        grown = height - group.height
        if group.kept and np.maximum.reduce(grown, initial=0.0) > 0.5:
            return None
        growth = float(np.add.reduce(grown / self.scale))
        if growth >= less or not memory.may_join(group.members, i):
            return None
        spans = memory.extended(group.spans, group.members, i)
        if self.fine and self.unchanged(group, i, growth, spans):
            return growth, height, spans
        for (begin, end), more in self.changed(group, i, height, spans):
            room = self.room[begin:end]
            more -= room if group.kept else np.minimum(room, self.spare[begin:end])
            if np.maximum.reduce(more, axis=None, initial=0.0) > 0.5:
                return None
        return growth, height, spans

    def unchanged(self, group: _Group, i: int, growth: float, spans: Sequence[Held]) -> bool:
        """Return whether no column takes more or less where a tensor joins a group, which has this growth."""
        return growth == 0.0 and i not in self.counted and spans == group.spans

    def before(self, group: _Group, i: int) -> bool:
        """Return whether a tensor ends before the result whose memory the group lies in is made."""
        starts = {path: begin for path, begin, _ in reversed(self.memory.held[group.members[0]])}
        return all(end <= starts.get(path, end) for path, _, end in self.memory.held[i])

    def changed(
        self, group: _Group, i: int, height: Values, spans: Sequence[Held]
    ) -> Iterator[tuple[tuple[int, int], Values]]:
        """Yield the bytes that are taken more, by range of columns, where a tensor joins a group."""
        memory = self.memory
        alone = memory.held[i] if i in self.counted else ()
        for path, begin, end in spans:
            more = np.empty((end - begin, len(height)))
            more[:] = height
            self.work += more.size
            for held, size in ((group.spans, group.height), (alone, memory.bytes[i])):
                for other, first, last in held:
                    if other == path:
                        more[first - begin : last - begin] -= size
            yield (begin, end), more

    def change(self, group: _Group, i: int, height: Values, spans: Sequence[Held]) -> None:
        for (begin, end), more in self.changed(group, i, height, spans):
            self.room[begin:end] -= more
            if not group.kept:
                self.spare[begin:end] -= more
        if group.kept and i in self.counted:
            for _, begin, end in self.memory.held[i]:
                self.spare[begin:end] += self.memory.bytes[i]
