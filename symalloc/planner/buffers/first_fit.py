"""Group tensors one by one, each into the arena that grows least, where the call stays within its limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice

import numpy as np

from symalloc.planner.buffers.call_columns import Held
from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.buffers.native_arenas import FitStart, fit_natively
from symalloc.planner.grid import Values

FEW = 3
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
    order = sorted(planned, key=lambda i: (memory.tenants[i].made, i))
    return _fitted(memory, order, results, hosts, groups, shares=_shares(memory), counted=True)


def few_arenas(
    memory: CallTimeline, planned: Sequence[int], results: Sequence[int], hosts: Sequence[int]
) -> list[list[int]] | None:
    """Return at most FEW groups besides the results, large tensors first; None where that keeps no limit.

    Those come before that are live where one arena for all would be too much: they are to share one.
    """
    whole = memory.taken([*([i] for i in results), planned])
    crowded = np.logical_or.reduce(whole > memory.limit + 0.5, axis=1)
    before = [0, *accumulate(crowded.tolist())]  # the crowded columns in front of each
    shares = _shares(memory)

    def rank(i: int) -> tuple[bool, float, int]:
        late = any(before[begin] < before[end] for _, begin, end in memory.held[i])
        return not late, -shares[i], memory.tenants[i].made

    order = sorted(planned, key=rank)
    return _fitted(memory, order, results, hosts, shares=shares, spread=len(results) + FEW)


def _shares(memory: CallTimeline) -> list[float]:
    """The share that each tenant has of what is taken at most, summed up over the bindings in their order."""
    shares: list[float] = np.add.accumulate(memory.bytes / memory.scale, axis=1)[:, -1].tolist()
    return shares


def _fitted(
    memory: CallTimeline,
    order: Sequence[int],
    results: Sequence[int],
    hosts: Sequence[int],
    groups: Sequence[Sequence[int]] = (),
    *,
    shares: Sequence[float],
    counted: bool = False,
    spread: int = 0,
) -> list[list[int]] | None:
    """Return the groups where tensors are entered in an order; None where the limit is not kept, or it takes
    more than `spread` arenas or too much work.

    Tensors that are `counted` lie in none until they are entered.
    """
    lone = [[i] for i in results]
    there = [*groups, *([i] for i in order if counted)]
    room = memory.limit - memory.taken([*lone, *there])
    spare = memory.floor - memory.own(there)  # what arenas may take more that lie in no result
    opened = [*(i in hosts for i in results), *(True for _ in groups)]
    start = FitStart([*lone, *groups], opened, shares, room, spare, counted, spread)
    if memory.native is None:
        found = _FirstFit(memory, start).fitted(order)
    else:
        found = fit_natively(memory.native, memory, start, order, MOST_TRIED, MOST_WORK, TRIAL)
    return None if found is None else [[group[0], *sorted(group[1:])] for group in found]


class _Group:
    def __init__(self, memory: CallTimeline, members: Sequence[int], *, open_to: bool) -> None:
        self.members, self.kept, self.open = list(members), memory.tenants[members[0]].kept, open_to
        self.load = np.zeros_like(memory.need)
        for i in members:
            self.add(memory, i)
        alone = len(members) == 1
        self.height: Values = memory.bytes[members[0]] if alone else self.load.max(axis=0, initial=0.0)
        self.hold(memory, memory.reserved(members))

    def add(self, memory: CallTimeline, i: int) -> None:
        """Add a tensor to what is live of the members."""
        for _, begin, end in memory.held[i]:
            part = self.load[begin:end]
            part += memory.bytes[i]  # in place: an assignment to the slice would copy it

    def hold(self, memory: CallTimeline, spans: tuple[Held, ...]) -> None:
        """Hold the arena during `spans`: from the column `first` on one path, -1 where it is on none."""
        self.spans = spans
        self.first = next((begin for path, begin, _ in spans if path in memory.paths), -1)


class _FirstFit:
    """The groups so far, and what is left at each column."""

    def __init__(self, memory: CallTimeline, start: FitStart) -> None:
        self.memory, self.start = memory, start
        self.groups = [
            _Group(memory, group, open_to=opened)
            for group, opened in zip(start.groups, start.opened, strict=True)
        ]
        self.room, self.spare = start.room.copy(), start.spare.copy()
        self.fine = min(self.room.min(initial=0.0), self.spare.min(initial=0.0)) >= -0.5
        self.work = 0

    def fitted(self, order: Sequence[int]) -> list[list[int]] | None:
        """Enter tensors in an order and return the members of each group, the result first."""
        most = self.start.spread or len(self.groups) + len(order)
        for i in order:
            if not self.enter(i) or len(self.groups) > most or self.work > MOST_WORK:
                return None
        return [group.members for group in self.groups]

    def enter(self, i: int) -> bool:
        """Put a tensor into the group that grows least by it, or into one of its own; return whether that
        keeps the limit.
        """
        start = self.start
        best: tuple[float, _Group, Values, tuple[Held, ...]] | None = None
        for group in islice((group for group in reversed(self.groups) if group.open), MOST_TRIED):
            self.work += TRIAL
            found = self.joined(group, i, np.inf if best is None else best[0])
            if found is not None:
                best = (found[0], group, found[1], found[2])
                if found[0] <= 0:
                    break
        if best is None or (len(self.groups) < start.spread and best[0] >= start.shares[i] - 1e-9):
            self.groups.append(_Group(self.memory, [i], open_to=True))
            return start.counted or self.alone(i)
        growth, group, height, spans = best
        if not self.unchanged(group, growth, spans):
            self.change(group, i, height, spans)
        group.members.append(i)
        group.add(self.memory, i)
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

    def full(self, group: _Group, i: int) -> bool:
        """Return whether the arena cannot even become as large as a tensor where it is first held, and the
        tensor is not.
        """
        first = group.first
        if group.kept or first < 0 or any(begin <= first < end for _, begin, end in self.memory.held[i]):
            return False
        left = np.minimum(self.room[first], self.spare[first])
        return bool((self.memory.bytes[i] - group.height > left + 0.5).any())

    def joined(self, group: _Group, i: int, less: float) -> tuple[float, Values, tuple[Held, ...]] | None:
        """By how much the group would grow, its height and spans then; None where that takes too much, or is
        not `less`.
        """
        memory, size = self.memory, self.memory.bytes[i]
        if group.kept and ((size > group.height + 0.5).any() or not self.before(group, i)):
            return None
        if self.full(group, i):
            return None
        height = group.height
        if memory.held[i]:
            most = np.maximum.reduce(group.load[memory.columns.where(i)], axis=0, initial=0.0)
            height = np.maximum(height, most + size)
        grown = height - group.height
        if group.kept and np.maximum.reduce(grown, initial=0.0) > 0.5:
            return None
        growth = float(np.add.accumulate(grown / memory.scale)[-1])  # in order, as the library adds
        if growth >= less or not memory.may_join(group.members, i):
            return None
        spans = memory.extended(group.spans, group.members, i)
        if self.fine and self.unchanged(group, growth, spans):
            return growth, height, spans
        for (begin, end), more in self.changed(group, i, height, spans):
            room = self.room[begin:end]
            more -= room if group.kept else np.minimum(room, self.spare[begin:end])
            if np.maximum.reduce(more, axis=None, initial=0.0) > 0.5:
                return None
        return growth, height, spans

    def unchanged(self, group: _Group, growth: float, spans: Sequence[Held]) -> bool:
        """Return whether no column takes more or less where a tensor joins a group, which has this growth."""
        return growth == 0.0 and not self.start.counted and spans == group.spans

    def before(self, group: _Group, i: int) -> bool:
        """Return whether a tensor ends before the result whose memory the group lies in is made."""
        starts = {path: begin for path, begin, _ in reversed(self.memory.held[group.members[0]])}
        return all(end <= starts.get(path, end) for path, _, end in self.memory.held[i])

    def changed(
        self, group: _Group, i: int, height: Values, spans: Sequence[Held]
    ) -> Iterator[tuple[tuple[int, int], Values]]:
        """Yield the bytes that are taken more, by range of columns, where a tensor joins a group."""
        memory = self.memory
        alone = memory.held[i] if self.start.counted else ()
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
        if group.kept and self.start.counted:
            for _, begin, end in self.memory.held[i]:
                self.spare[begin:end] += self.memory.bytes[i]
