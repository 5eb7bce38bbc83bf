"""Move tensors out of an arena into the memory of others, in which they end before those are made.

Such a *host* is a result, or a tensor that lives longer than the arena.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.grid import Truths, Values

MOST_CHAINS = 8  # that lie beside each other in one result
AT_ONCE = 10_000  # columns that are compared together
LASTING = 0.001  # the bonus for each column: what lasts long is better off there than among what does not

Numbers: TypeAlias = NDArray[np.int64]


def relieved(
    memory: CallTimeline, members: Sequence[int], results: Sequence[int], hosts: Sequence[int]
) -> list[list[int]] | None:
    """Return groups: the hosts with what moved into the memory of each, then what is left of `members`.

    The memory of `hosts` is taken to be held all the while, that of `results` besides from when they are
    made.  None where what is left takes too much even so.
    """
    relief = _Relief(memory, members, hosts)
    if not relief.run([result for result in results if result not in hosts]):
        return None
    rest = [i for i in members if relief.left[i]]
    return [
        *([host, *guests] for host, guests in zip(hosts, relief.guests, strict=True)),
        *([rest] if rest else []),
    ]


class _Relief:
    """An arena of `members` beside `hosts`; `guests` are what moved into each.  `left` is true of members.

    `rooms` are the bytes of each host; one that is no result may grow at bindings that are not judged.
    """

    def __init__(self, memory: CallTimeline, members: Sequence[int], hosts: Sequence[int]) -> None:
        self.memory, self.hosts = memory, list(hosts)
        self.left = np.zeros(len(memory.tenants), dtype=np.bool_)
        self.left[members] = True
        self.guests: list[list[int]] = [[] for _ in hosts]
        self.load = memory.load(members)
        self.loads = [memory.load([host]) for host in hosts]
        self.rooms: Values = memory.bytes[self.hosts]
        growing = [number for number, host in enumerate(hosts) if not memory.tenants[host].kept]
        self.rooms[growing, memory.judged :] = np.inf

    @property
    def members(self) -> Numbers:
        """Those that are left, in order."""
        return np.flatnonzero(self.left)

    def run(self, results: Sequence[int]) -> bool:
        """Move tensors until what is left, beside `results`, keeps the limit; return whether it does."""
        memory = self.memory
        others = memory.load(results) + memory.beside
        others += memory.bytes[self.hosts].sum(axis=0)
        room = np.full(others.shape[1], np.inf)
        for _, begin, end in memory.reserved(self.members.tolist()):
            room = np.minimum(room, (memory.limit[begin:end] - others[begin:end]).min(axis=0, initial=np.inf))
        if (room < 0).any() or self.hopeless(room):
            return False
        if memory.straight:
            self.chains(room)
        over = self.over(room)
        while over.any():
            found = self.best(int(np.argmax(over)), over)
            if found is None:
                return False
            self.move(*found)
            over = self.over(room)
        return True

    def hopeless(self, room: Values) -> bool:
        """Return whether too much is left however tensors are moved: hosts are full, or all in them that are
        small enough.
        """
        size, hosts, members = self.memory.bytes, self.rooms, self.members
        fitting: Truths = np.all(size[members][:, None, :] <= hosts[None, :, :] + 0.5, axis=2)
        moved = np.minimum(self.memory.load(members[fitting.any(axis=1)].tolist()), hosts.sum(axis=0))
        return bool((self.load - moved > room + 0.5).any())

    def chains(self, room: Values) -> None:
        """Move tensors that follow each other, host by host, those that take most off what is too much."""
        for host in range(len(self.hosts)):
            for _ in range(MOST_CHAINS):
                surplus = np.maximum(self.load - room, 0.0)
                if not surplus.any():
                    return
                chain = self.chain(host, surplus)
                if not chain:
                    break
                self.move_apart(chain, host)

    def chain(self, host: int, surplus: Values) -> list[int]:
        """The members one behind the other, each of which fits into a host, that take most off `surplus`.

        This is the heaviest set of disjoint intervals, found from left to right.
        """
        fitting = self.all_fitting(host)
        if not len(fitting):
            return []
        size = self.memory.bytes
        shares = (size[fitting] / np.maximum(size[self.hosts[host]], 1.0)).sum(axis=1)
        begins, ends = self.memory.columns.held_columns.single(fitting)
        gains = self.gains(fitting, surplus) + LASTING * shares * (ends - begins)
        order = np.lexsort((fitting, gains, begins, ends))
        best: list[tuple[float, int, int]] = [(0.0, -1, 0)]  # what is gained, by which last, behind which
        until = [0]
        intervals = (each[order].tolist() for each in (ends, begins, gains, fitting))
        for end, begin, gain, i in zip(*intervals, strict=True):
            before = bisect_right(until, begin) - 1
            most = best[before][0] + gain
            if most > best[-1][0]:
                best.append((most, i, before))
                until.append(end)
        found, at = [], len(best) - 1
        while at:
            found.append(best[at][1])
            at = best[at][2]
        return found

    def all_fitting(self, host: int) -> Numbers:
        """The members, in order, that there is room for in a host's memory; the function is straight."""
        memory, result = self.memory, self.hosts[host]
        room, taken = self.rooms[host] + 0.5, self.loads[host]
        ((_, made, _),) = memory.held[result]
        members = self.members
        begins, ends = memory.columns.held_columns.single(members)
        early = members[ends <= made]
        if not len(early):
            return early
        sizes = memory.bytes[early]
        if taken[:made].any():
            between = np.stack((begins, ends), axis=1)[
                ends <= made
            ].ravel()  # whose every other stretch is one
            padded = np.concatenate((taken, np.zeros((1, taken.shape[1]))))
            sizes += np.maximum.reduceat(padded, between)[::2]
        fitting: Numbers = early[(sizes <= room).all(axis=1)]
        if memory.all_known:
            return fitting
        group = [result, *self.guests[host]]
        return np.array([i for i in fitting.tolist() if memory.may_join(group, i)], dtype=np.int64)

    def gains(self, members: Numbers, surplus: Values) -> Values:
        """The shares of `surplus` that each of some members takes off it, over columns and bindings."""
        share, least = surplus / np.maximum(surplus.max(axis=0), 1.0), np.maximum(surplus, 1.0)
        sizes, kinds = self.memory.kinds_of(members)
        if len(sizes) * len(surplus) < self.many(members):  # each column is looked at once for each size
            gained = np.stack([(np.minimum(size / least, 1.0) * share).sum(axis=1) for size in sizes])
            columns, owners, firsts = self.columns(members)
            return np.add.reduceat(gained[kinds[owners], columns], firsts)
        found: list[Values] = []
        for some in self.in_parts(members):
            columns, owners, firsts = self.columns(some)
            parts = self.memory.bytes[some][owners] / least[columns]
            gained = (np.minimum(parts, 1.0) * share[columns]).sum(axis=1)
            found.append(np.add.reduceat(gained, firsts))
        return np.concatenate(found)

    def many(self, members: Numbers) -> int:
        """The number of columns of some members, those counted again that several have."""
        begins, ends = self.memory.columns.held_columns.single(members)
        return int((ends - begins).sum())

    def in_parts(self, members: Numbers) -> Iterator[Numbers]:
        """Yield some members after the other, whose columns together are about AT_ONCE."""
        begins, ends = self.memory.columns.held_columns.single(members)
        parts = np.cumsum(ends - begins) // AT_ONCE
        yield from np.split(members, np.flatnonzero(np.diff(parts)) + 1)

    def columns(self, members: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """The columns at which some members are live, one after the other; the place among them of each
        column's owner; and the place of each member's first column.
        """
        begins, ends = self.memory.columns.held_columns.single(members)
        lengths = ends - begins
        firsts = np.cumsum(lengths) - lengths
        owners = np.repeat(np.arange(len(members)), lengths)
        return np.arange(len(owners)) + (begins - firsts)[owners], owners, firsts

    def over(self, room: Values) -> Truths:
        """The columns at which what is left takes more than `room`."""
        found: Truths = np.any(self.load > room + 0.5, axis=1)
        return found

    def best(self, column: int, over: Truths) -> tuple[int, int] | None:
        """The member to move, of those that are live at `column`, and the host, by number, to move it to.

        It is the one that is live at most of the columns `over` the limit; the largest of those.
        """
        crowded = (0, *over.cumsum().tolist())  # in front of each column
        ranked = []
        for i in self.members.tolist():
            if not any(begin <= column < end for _, begin, end in self.memory.held[i]):
                continue
            helps = sum(crowded[end] - crowded[begin] for _, begin, end in self.memory.held[i])
            ranked.append((helps, float(self.memory.bytes[i].sum()), -i))
        for _, _, negated in sorted(ranked, reverse=True):
            host = next((h for h in range(len(self.hosts)) if self.fits(-negated, h)), None)
            if host is not None:
                return -negated, host
        return None

    def fits(self, i: int, host: int) -> bool:
        """Return whether there is room for a member in a host's memory, whose result comes later."""
        memory = self.memory
        result = self.hosts[host]
        room, size = self.rooms[host] + 0.5, memory.bytes[i]
        if (size > room).any():
            return False
        if (self.loads[host][memory.columns.where(i)] + size > room).any():
            return False
        apart = {path: begin for path, begin, _ in reversed(memory.held[result])}
        before = all(end <= apart.get(path, end) for path, _, end in memory.held[i])
        return before and memory.may_join([result, *self.guests[host]], i)

    def move_apart(self, members: Sequence[int], host: int) -> None:
        """Move members that are never live together into a host's memory; the function is straight."""
        self.left[members] = False
        self.guests[host] += members
        columns, owners, _ = self.columns(np.array(members, dtype=np.int64))
        size = self.memory.bytes[members][owners]
        self.load[columns] -= size
        self.loads[host][columns] += size

    def move(self, i: int, host: int) -> None:
        """Move a member into a host's memory."""
        self.left[i] = False
        self.guests[host].append(i)
        where = self.memory.columns.where(i)
        self.load[where] -= self.memory.bytes[i]
        self.loads[host][where] += self.memory.bytes[i]
