"""Assign each buffer to an arena: few of them, and a call takes little more than it would without a plan.

One arena for all, held from its first use to its last, takes the most that is live at one moment; but results
are made while it is held, sizes become known, one branch needs less than the other, and memory is taken that
no plan places.  So assignments are tried in this order, until one keeps to the limit of `CallTimeline` with
what it allows beyond, and its arenas together to their floor:

1. one arena for all that may share one;
2. one arena, and what ends before a result is made lies in the memory of that;
3. one for each block of an If, joined again where that keeps the limit; in a function without Ifs one that
   ends at a cut through time, with little that lives across it, and one or two for the rest;
4. each buffer joins the first arena that may grow by it, or opens one;
5. each buffer by itself.

They are judged at sample bindings.  Others at which the chosen one takes too much are looked for, and the
choice is made again with those among the samples.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from symalloc.planner.buffers.call_timeline import (
    SHARE,
    CallColumns,
    CallProfile,
    CallTimeline,
    Groups,
    Held,
    sizes_of,
)
from symalloc.planner.buffers.candidates import Candidates
from symalloc.planner.grid import Grid, Truths, Values
from symalloc.planner.memory_plan import Buffer, FurtherArena
from symalloc.planner.planner_options import PlanOptions
from symalloc.planner.shapes import ExtentBounds, SizeTable, sample_table, symbols_of, worst_shapes
from symalloc.program.ir import Var

MOST_CELLS, FEWEST_SHAPES = 200_000, 16  # columns and shapes, multiplied, that a search starts from
EXACT = 1e-9  # of a ratio, which is an error of rounding
FEW = 3  # arenas, which may take little more than their floor
MOST_CHOICES = 4  # each made where the one before takes too much at some shape
LASTING = 0.001  # what a column counts at which not too much is left: what lasts is better off in a host
MOST_CHAINS = 8  # of buffers that lie beside each other in one host
MOST_CUTS = 5  # through time, that are tried
MOST_JOINED = 24  # arenas of which every pair is tried
MOST_ALONE = 64  # buffers that may lie each by itself
MOST_TRIED = 24  # arenas that one buffer is tried in
MOST_WORK, TRIAL = (
    100_000_000,
    2000,
)  # sums of bytes that are worth it to group one by one; one trial counts so many


class Assignment(NamedTuple):
    """The buffers of each arena, in the order in which these are reserved; and the results that keep memory
    of their own.

    `further` says of each arena why it is not one with others, where it could be.  `profile` tells what a
    call takes of the function, where others call it; `spread` is how many times their floor all arenas take
    together at the worst of the sample bindings.
    """

    arenas: Sequence[Sequence[Buffer]]
    further: Sequence[FurtherArena | None]
    lone: Sequence[Buffer]
    profile: CallProfile | None
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Restrictions:
    """The things that an assignment must do without, as a plan of another was no good: in the memory of
    `excluded_results` nothing else lies, and the first `skip` assignments that would do are passed over.
    """

    excluded_results: frozenset[Var] = frozenset()
    skip: int = 0


UNRESTRICTED = Restrictions()


def assign(
    candidates: Candidates,
    profiles: Mapping[str, CallProfile],
    bounds: ExtentBounds,
    options: PlanOptions,
    *,
    restrictions: Restrictions = UNRESTRICTED,
) -> Assignment:
    """Return the arenas of the buffers of a function; sample shapes keep within `bounds`.

    `profiles` are those of the functions that it calls.  In the memory of `excluded_results` nothing else
    lies.
    """
    return _Assigning(candidates, profiles, bounds, options, restrictions).run()


@dataclass(slots=True)
class _Assigning:
    """The assignment of `candidates`; `more` are bindings besides the samples at which too much was taken."""

    candidates: Candidates
    profiles: Mapping[str, CallProfile]
    bounds: ExtentBounds
    options: PlanOptions
    restrictions: Restrictions
    more: list[Mapping[str, int]] = field(default_factory=list)

    def run(self) -> Assignment:
        buffers = self.candidates.buffers
        groups: list[tuple[list[int], FurtherArena | None]] = []
        spread = 1.0
        for place in dict.fromkeys((b.device, b.scope) for b in buffers):
            members = [b.id for b in buffers if (b.device, b.scope) == place]
            chosen, reasons, ratio = self.chosen(self.columns([buffers[i] for i in members]))
            spread = max(spread, ratio)
            groups += zip(([members[i] for i in group] for group in chosen), reasons, strict=True)
        groups.sort(key=lambda one: self.reserved_at(one[0]))
        profile = self.profile([group for group, _ in groups]) if self.candidates.called else None
        arenas: list[Sequence[Buffer]] = []
        further: list[FurtherArena | None] = []
        lone: list[Buffer] = []
        for number, (group, why) in enumerate(groups):
            if len(group) == 1 and buffers[group[0]].returned:
                lone.append(buffers[group[0]])
                continue
            lendable = self.options.graphs or profile is None or number in profile.lent
            arenas.append(_arena([buffers[i] for i in sorted(group)], len(arenas), lendable=lendable))
            further.append(why)
        return Assignment(_renumbered(arenas), further, lone, profile, spread)

    def columns(self, buffers: Sequence[Buffer]) -> CallColumns:
        """Return the moments of a call at which `buffers` are there."""
        found, apart = self.candidates, self.options.constants_apart
        return CallColumns(buffers, found.paths, found.nesting, self.profiles, apart=apart)

    def timeline(self, columns: CallColumns) -> CallTimeline:
        """Return what is taken at sample bindings and at `more`."""
        sizes = sizes_of(columns, self.profiles)
        return CallTimeline(columns, sample_table(sizes, self.bounds, self.more), self.profiles)

    def reserved_at(self, group: Sequence[int]) -> tuple[int, str, int, int]:
        """Return the place of an arena and where it is reserved, in the order of the text."""
        buffers = [self.candidates.buffers[i] for i in group]
        point = self.candidates.nesting.reservation(b.made for b in buffers).point
        return buffers[0].device, buffers[0].scope, point, group[0]

    def chosen(self, columns: CallColumns) -> tuple[Groups, Sequence[FurtherArena | None], float]:
        """Return the arenas of the buffers of `columns`, why there is each, and their ratio to the floor."""
        results = [[i] for i, b in enumerate(columns.buffers) if b.returned]
        planned = [i for i, b in enumerate(columns.buffers) if not b.returned]
        hosts = [[i] for (i,) in results if self.lends(columns.buffers[i])]
        timeline = self.timeline(columns)
        whole = [*results, *_whole(timeline, planned)]
        if self.options.graphs or len(whole) == len(columns.buffers):
            return whole, [None] * len(whole), timeline.spread(whole)
        groups: Groups = whole
        for left in reversed(range(MOST_CHOICES)):
            stages = _few(timeline, planned, results, hosts), _one_by_one(timeline, planned, results)
            groups = _best(timeline, stages, self.restrictions.skip)
            shapes = self.worst(columns, groups) if left else ()
            if not shapes:
                break
            before, self.more = len(timeline.table.grid), [*self.more, *shapes]
            timeline = self.timeline(columns)
            if len(timeline.table.grid) == before:  # nothing better is known for these
                break
        return groups, _further(timeline, whole, groups), timeline.spread(groups)

    def lends(self, result: Buffer) -> bool:
        """Return whether others may lie in the memory of a result."""
        return self.options.bounds != "reserve" and result.var not in self.restrictions.excluded_results

    def worst(self, columns: CallColumns, groups: Groups) -> Sequence[Mapping[str, int]]:
        """Return shapes at which arenas take more than is allowed, the worst first."""
        sizes = sizes_of(columns, self.profiles)
        names = symbols_of(sizes)

        def excesses(grid: Grid) -> tuple[Grid, Values] | None:
            table = SizeTable.at(grid, sizes).defined()
            if table is None:
                return None
            over = CallTimeline(columns, table, self.profiles).over(groups).max(axis=0, initial=0.0)
            return table.grid, over

        return worst_shapes(names, self.bounds, excesses, max(MOST_CELLS // len(columns), FEWEST_SHAPES))

    def profile(self, groups: Groups) -> CallProfile:
        """Return what a call takes; its caller brings all arenas that are reserved at entry, or none where a
        call would take too much then.
        """
        columns = self.columns(self.candidates.buffers)
        entry = [
            number
            for number, group in enumerate(groups)
            if all(columns.buffers[i].known < 0 and not columns.buffers[i].returned for i in group)
        ]
        lent = self.options.graphs or self.timeline(columns).excess(groups, entry) <= 1
        return CallProfile(columns, self.profiles, groups, frozenset(entry if lent else ()))


def _arena(members: Sequence[Buffer], number: int, *, lendable: bool) -> Sequence[Buffer]:
    last = max(members, key=lambda b: b.known).defined_by
    return [replace(b, arena=number, defined_by=last, lendable=lendable) for b in members]


def _renumbered(arenas: Sequence[Sequence[Buffer]]) -> Sequence[Sequence[Buffer]]:
    ids = iter(range(sum(map(len, arenas))))
    return [[replace(b, id=next(ids)) for b in arena] for arena in arenas]


def _best(timeline: CallTimeline, stages: Iterable[Iterator[Groups]], skip: int) -> Groups:
    """Return the first attempt of few arenas that keeps the limit and whose arenas take no more than their
    floor, `skip` of those aside; else one that takes little more than the floor, of these one with fewest
    arenas.

    A later stage of attempts is looked at where none of few arenas is found in those before.
    """
    buffers = timeline.columns.buffers
    seen: set[frozenset[tuple[int, ...]]] = set()
    others: list[tuple[float, int, Groups]] = []
    found: Groups = ()
    for stage in stages:
        if skip < len(seen) and any(excess <= 1 and count <= FEW for excess, count, _ in others):
            break
        for groups in stage:
            key = frozenset(map(tuple, groups))
            if key in seen:
                continue
            seen.add(key)
            excess, spread = timeline.excess(groups), timeline.spread(groups)
            count = sum(not buffers[group[0]].returned for group in groups)
            if count <= FEW and excess <= 1 and spread <= 1 + EXACT:
                found, skip = groups, skip - 1
                if skip < 0:
                    return found
            else:
                others.append((max(excess, (spread - 1) / SHARE, 1.0), count, groups))
    return min(others, key=lambda one: one[:2])[2] if others else found


def _few(timeline: CallTimeline, planned: Sequence[int], results: Groups, hosts: Groups) -> Iterator[Groups]:
    """Yield assignments of `planned` buffers to few arenas; `hosts` are those of `results` in whose memory
    others may lie.
    """
    whole = _whole(timeline, planned)
    yield [*results, *whole]
    if len(whole) == 1:
        others = [result for result in results if result not in hosts]
        yield [*others, *_hosted(timeline, whole[0], hosts, others)]
    if timeline.columns.straight:
        yield from _cut(timeline, planned, whole, results, hosts)
    else:
        yield [*results, *_joined(timeline, _by_block(timeline.columns, whole), results)]


def _one_by_one(timeline: CallTimeline, planned: Sequence[int], results: Groups) -> Iterator[Groups]:
    """Yield assignments that look at each of `planned` buffers by itself."""
    fitted = _FirstFit(timeline, results).run(planned)
    if fitted is not None:
        yield [*results, *_joined(timeline, fitted, results)]
    elif len(planned) <= MOST_ALONE:
        yield [*results, *([i] for i in planned)]


# -- one arena ---------------------------------------------------------------------------------------------


def _whole(timeline: CallTimeline, planned: Sequence[int]) -> Groups:
    """Return few groups, in the order of the text, each of which may share an arena; those of grounded
    buffers as small as they can be.
    """
    columns = timeline.columns
    others = [i for i in planned if not columns.buffers[i].grounded]
    if columns.may_share(others) if others else True:
        groups = [others] if others else []
    else:
        groups = []
        for i in sorted(others, key=lambda i: (columns.buffers[i].made, i)):
            group = next((g for g in groups if columns.may_share([*g, i])), None)
            if group is None:
                groups.append([i])
            else:
                group.append(i)
    return [*groups, *_storage_slots(timeline, [i for i in planned if columns.buffers[i].grounded])]


def _storage_slots(timeline: CallTimeline, grounded: Sequence[int]) -> Groups:
    """Return the members of each storage, at whose start they lie one after the other.

    They are taken largest first at the sample bindings, each into the storage that grows least by it; one is
    opened where that costs no more.
    """
    sizes: Values = timeline.bytes[list(grounded)]
    shares = dict(zip(grounded, sizes / np.maximum(sizes.max(axis=0, initial=1.0), 1.0), strict=True))
    found: list[list[int]] = []
    table = np.zeros_like(sizes)  # how large each storage is, as a share of the largest tensor
    buffers = timeline.columns.buffers
    for i in sorted(grounded, key=lambda i: (-float(shares[i].sum()), buffers[i].made, i)):
        own = float(shares[i].sum())
        growths = np.maximum(shares[i] - table[: len(found)], 0.0).sum(axis=1)
        order = (
            number for number in growths.argsort(kind="stable").tolist() if growths[number] < own or not own
        )
        number = next((n for n in order if timeline.columns.may_share([*found[n], i])), len(found))
        if number == len(found):
            found.append([])
        found[number].append(i)
        np.maximum(table[number], shares[i], out=table[number])
    return sorted(map(sorted, found))


# -- in the memory of others ---------------------------------------------------------------------------------


def _hosted(timeline: CallTimeline, members: Sequence[int], hosts: Groups, besides: Groups) -> Groups:
    """Return `hosts` with buffers that moved from an arena of `members` into the memory of each, and what is
    left: they move until the rest keeps the limit beside the groups `besides`, or as long as that helps.
    """
    hosting = _Hosting(timeline, members, hosts)
    hosting.run(besides)
    return [*hosting.groups, *([hosting.left] if hosting.left else [])]


class _Hosting:
    """An arena of the buffers that are `left`, beside `groups` in whose memory others may lie.

    `load` is what is left at each column, `loads` what lies in each of the groups, which hold `rooms` bytes.
    """

    def __init__(self, timeline: CallTimeline, members: Sequence[int], hosts: Groups) -> None:
        self.timeline, self.columns = timeline, timeline.columns
        self.left, self.groups = list(members), [list(host) for host in hosts]
        self.load, self.loads = timeline.load(members), [timeline.load(host) for host in hosts]
        self.rooms = [timeline.height(host) for host in hosts]
        self.scale = np.maximum(timeline.limit.max(axis=0, initial=1.0), 1.0)

    def room(self, besides: Groups) -> Values:
        """The bytes that the arena may have at each binding beside the groups, held all the while."""
        timeline, buffers = self.timeline, self.columns.buffers
        pairs = list(zip(self.groups, self.rooms, strict=True))
        none = np.zeros_like(self.load[0])
        others = timeline.unplanned + timeline.arenas(besides) + sum((room for _, room in pairs), none)
        room = timeline.floor - sum((room for host, room in pairs if not buffers[host[0]].returned), none)
        for _, begin, end in self.columns.reserved(self.left):
            room = np.minimum(room, (timeline.limit - others)[begin:end].min(axis=0, initial=np.inf))
        return room

    def run(self, besides: Groups) -> None:
        """Move buffers until the rest keeps the limit, or as long as that helps."""
        room = self.room(besides) + 0.5
        for number in range(len(self.groups)):
            for _ in range(MOST_CHAINS):
                crowded = self.load > room
                chain = self.chain(number, crowded) if crowded.any() else []
                if not chain:
                    break
                self.move(chain, number)

    def chain(self, number: int, crowded: Truths) -> list[int]:
        """The buffers one behind the other, each of which fits into a group, that take most off where too
        much is left: the heaviest set of disjoint intervals, found from left to right.
        """
        before = np.concatenate((np.zeros_like(self.load[:1]), crowded.cumsum(axis=0)))
        best: list[tuple[float, int, int]] = [(0.0, -1, 0)]  # what is gained, by which last, behind which
        until = [0]
        for i in sorted(self.left, key=lambda i: self.columns.held[i][-1].end if self.columns.held[i] else 0):
            if not self.fits(i, number):
                continue
            begin, end = self.columns.held[i][0].begin, self.columns.held[i][-1].end
            share = self.timeline.bytes[i] / self.scale
            gain = float((before[end] - before[begin] + LASTING * (end - begin)) @ share)
            behind = bisect_right(until, begin) - 1
            if best[behind][0] + gain > best[-1][0]:
                best.append((best[behind][0] + gain, i, behind))
                until.append(end)
        found, at = [], len(best) - 1
        while at:
            found.append(best[at][1])
            at = best[at][2]
        return found

    def fits(self, i: int, number: int) -> bool:
        """Return whether there is room for a buffer in the memory of a group."""
        size, load, room = self.timeline.bytes[i], self.loads[number], self.rooms[number]
        if (
            not self.columns.held[i]
            or (size > room).any()
            or not self.columns.may_join(self.groups[number], i)
        ):
            return False
        return all((load[begin:end] + size <= room).all() for _, begin, end in self.columns.held[i])

    def move(self, members: Sequence[int], number: int) -> None:
        """Move buffers into the memory of a group."""
        self.groups[number] += members
        moved = set(members)
        self.left = [i for i in self.left if i not in moved]
        self.load -= (load := self.timeline.load(members))
        self.loads[number] += load


# -- one for each block ------------------------------------------------------------------------------------


def _by_block(columns: CallColumns, whole: Groups) -> Groups:
    """Return the groups of `whole`, each parted by the blocks of Ifs in which buffers are made."""
    found: dict[object, list[int]] = {}
    for number, group in enumerate(whole):
        for i in group:
            blocks = tuple(columns.nesting.around(columns.buffers[i].made))
            found.setdefault((number, blocks), []).append(i)
    return list(found.values())


def _joined(timeline: CallTimeline, groups: Groups, results: Groups) -> Groups:
    """Return `groups` with pairs joined as long as that keeps the limit, and about the floor."""

    def kept(groups: Groups) -> bool:
        return timeline.excess([*results, *groups]) <= 1 and timeline.spread(groups) <= 1 + SHARE

    found = [list(group) for group in groups]
    pairs = list(combinations(range(len(found)), 2)) if 1 < len(found) <= MOST_JOINED and kept(found) else []
    while pairs:
        first, second = pairs.pop(0)
        both = sorted([*found[first], *found[second]])
        rest = [group for number, group in enumerate(found) if number not in (first, second)]
        if timeline.columns.may_share(both) and kept([*rest, both]):
            found = [*rest, both]
            pairs = list(combinations(range(len(found)), 2))
    return found


# -- a cut through time ------------------------------------------------------------------------------------


def _cut(
    timeline: CallTimeline, planned: Sequence[int], whole: Groups, results: Groups, hosts: Groups
) -> Iterator[Groups]:
    """Yield two or three arenas: of the buffers that end before a column, those that live across it, and
    those that begin there or later; with buffers of the first in the memory of the second, and of the last in
    that of results, and without.
    """
    others = [result for result in results if result not in hosts]
    for before, across, behind in _parts(timeline, planned, [*results, *whole]):
        if not before or not all(map(timeline.columns.may_share, (before, sorted(across + behind)))):
            continue
        rest = sorted(across + behind)
        yield [*results, before, rest]
        yield [*results, *_hosted(timeline, before, [rest], results)]
        if across and behind:
            for early in ([before, across], _hosted(timeline, before, [across], [behind, *results])):
                yield [*results, *early, behind]
                yield [*others, *early, *_hosted(timeline, behind, hosts, [*others, *early])]


def _parts(
    timeline: CallTimeline, planned: Sequence[int], whole: Groups
) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Yield the buffers of a straight function that end before a column, that live across it, and that begin
    there or later: columns with little across come first, of these the latest.

    No column lies behind the first at which the arenas `whole` take too much.
    """
    crowded = np.any(timeline.over(whole) > 1, axis=1)
    first, columns = int(np.argmax(crowded)), timeline.columns
    held = {i: columns.held[i][0] for i in planned if columns.held[i]}
    scale = np.maximum(timeline.limit.max(axis=0, initial=1.0), 1.0)
    begun = np.zeros(len(columns))
    for i, (_, begin, _) in held.items():
        begun[begin] += float((timeline.bytes[i] / scale).sum())
    load = (timeline.load(list(held)) / scale).sum(axis=1)
    across = (load - begun)[1 : first + 1]  # live in front of a column and at it
    for place in np.lexsort((-np.arange(first), across.round(9)))[:MOST_CUTS].tolist():
        column = place + 1
        yield (
            [i for i in planned if i not in held or held[i].end <= column],
            [i for i in held if held[i].begin < column < held[i].end],
            [i for i in held if held[i].begin >= column],
        )


# -- one by one --------------------------------------------------------------------------------------------


class _FirstFit:
    """Groups of buffers, largest first: each joins the group that grows least by it, or opens one.

    `room` is what is left of the limit and of the floor at each column, where what is in no group counts as
    lying by itself.
    """

    def __init__(self, timeline: CallTimeline, results: Groups) -> None:
        self.timeline, self.columns = timeline, timeline.columns
        self.groups: list[list[int]] = []
        self.loads: list[Values] = []
        self.spans: list[tuple[Held, ...]] = []
        own = timeline.load([i for i, b in enumerate(self.columns.buffers) if not b.returned])
        taken = own + timeline.load([i for (i,) in results]) + timeline.unplanned
        self.room = np.minimum(timeline.limit - taken, timeline.floor - own)
        self.scale = np.maximum(timeline.limit.max(axis=0, initial=1.0), 1.0)
        self.work = 0

    def run(self, planned: Sequence[int]) -> Groups | None:
        """Return the groups; None where that is too much work."""
        sizes = {i: float((self.timeline.bytes[i] / self.scale).sum()) for i in planned}
        for i in sorted(planned, key=lambda i: (-sizes[i], i)):
            if self.work > MOST_WORK:
                return None
            growths = sorted((self.growth(n, i), n) for n in range(min(len(self.groups), MOST_TRIED)))
            if not any(self.join(number, i) for growth, number in growths if growth <= sizes[i]):
                self.open(i)
        return [sorted(group) for group in self.groups]

    def growth(self, number: int, i: int) -> float:
        """By how much a group would grow."""
        load, size = self.loads[number], self.timeline.bytes[i]
        parts = [load[begin:end].max(axis=0, initial=0.0) for _, begin, end in self.columns.held[i]]
        self.work += TRIAL + load.size
        height = load.max(axis=0)
        most = np.maximum.reduce([height, *(part + size for part in parts)])
        return float(((most - height) / self.scale).sum())

    def open(self, i: int) -> None:
        """Give a buffer a group of its own."""
        load = np.zeros_like(self.room)
        _add(load, self.columns.held[i], self.timeline.bytes[i])
        self.groups.append([i])
        self.loads.append(load)
        self.spans.append(self.columns.held[i])

    def join(self, number: int, i: int) -> bool:
        """Put a buffer into a group where there is room for what that takes; return whether there is."""
        if not self.columns.may_join(self.groups[number], i):
            return False
        self.work += TRIAL + 3 * self.room.size
        load, size, held = self.loads[number], self.timeline.bytes[i], self.columns.held[i]
        both = [*self.groups[number], i]
        spans, grown, room = self.columns.reserved(both), load.copy(), self.room.copy()
        _add(grown, held, size)
        _add(room, spans, -grown.max(axis=0))
        _add(room, self.spans[number], load.max(axis=0))
        _add(room, held, size)
        if (room < np.minimum(self.room, 0.0) - 0.5).any():
            return False
        self.groups[number], self.loads[number], self.spans[number], self.room = both, grown, spans, room
        return True


def _add(table: Values, held: Sequence[Held], size: Values) -> None:
    for _, begin, end in held:
        table[begin:end] += size


# -- why there are several ---------------------------------------------------------------------------------


def _further(timeline: CallTimeline, whole: Groups, groups: Groups) -> Sequence[FurtherArena | None]:
    """Return for each arena behind the first why it is not one with the others."""
    buffers = timeline.columns.buffers
    own = [number for number, group in enumerate(groups) if not buffers[group[0]].returned]
    own.sort(key=lambda number: min(buffers[i].made for i in groups[number]))
    found: list[FurtherArena | None] = [None] * len(groups)
    over = np.maximum(timeline.over(whole), 0.0).max(axis=0)
    worst = int(np.argmax(over))
    at = timeline.table.grid.binding(worst)
    taken = int((timeline.arenas(groups) + timeline.unplanned)[:, worst].max(initial=0.0))
    for number in own[1:]:
        both = sorted([*groups[own[0]], *groups[number]])
        if not timeline.columns.may_share(both):
            found[number] = FurtherArena(reason=_apart(buffers[groups[number][0]]))
            continue
        rest = [group for n, group in enumerate(groups) if n not in (own[0], number)]
        joined = int((timeline.arenas([*rest, both]) + timeline.unplanned)[:, worst].max(initial=0.0))
        saves = max(joined - taken, 0)
        found[number] = FurtherArena(reason=SAVES if saves else LOOSE, saves=saves, at=at if saves else {})
    return found


SAVES = "in one arena with the others a call takes more"
LOOSE = "in one arena with the others no tight stacking was found"


def _apart(buffer: Buffer) -> str:
    if buffer.grounded:
        return "its tensors start a storage"
    if buffer.known >= 0 and buffer.defined_by is not None:
        return f"its size is known behind `{buffer.defined_by.name}`"
    return "its tensors share with their like only"
