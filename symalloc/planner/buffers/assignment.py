"""Assign each buffer to an arena: few of them, and a call takes little more than it would without a plan.

One arena for all, held from its first use to its last, takes the most that is live at one moment; but results
are made while it is held, sizes become known, and memory is taken that no plan places.  So assignments are
tried in this order, until one keeps the limit of `CallBytes` with what it allows beyond:

1. one arena for all that may share one;
2. one and two, of which one ends before results are made, with buffers in the memory of a result and without:
   found by a search through time;
3. the fewer of: these, and one for all that is made from there on; each buffer in the arena, or the memory of
   a result, that grows least by it and has room, or in one of its own.

They are judged at sample bindings.  Others at which the chosen one takes too much are looked for, and the
choice goes on with those among the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from symalloc.native.native_functions import packer_functions
from symalloc.planner.buffers.call_bytes import CallBytes, CallSteps, Groups, Spans
from symalloc.planner.buffers.candidates import Candidates
from symalloc.planner.grid import (
    ExtentBounds,
    Grid,
    Numbers,
    SizeTable,
    Values,
    sample_table,
    symbols_of,
    worst_shapes,
)
from symalloc.planner.memory_plan import Buffer, FurtherArena, PlanOptions
from symalloc.planner.overflow_guards import edges
from symalloc.program.ir import Var
from symalloc.program.types import ALIGNMENT
from symalloc.size.expr import ZERO, Expr, round_up

MOST_CELLS, FEWEST_SHAPES = 200_000, 16  # steps and shapes, multiplied, that a search starts from
MOST_CHOICES = 3  # each made where the one before is no good
MOST_SEARCHED, FEWEST_STATES = 2_000_000, 16  # sums of bytes in all states of a search through time
MOST_TRIED = 24  # arenas, and results, that one buffer is tried in, and of which every pair is
MOST_WORK = 50_000_000  # sums of bytes that are worth it to group buffers one by one


class Partition(NamedTuple):
    """A way to divide the buffers of a function without Ifs: between an arena that is `ended` at a cut
    through time and one that lasts; with one more for all that is made from the step in front of the cut on
    (`tail`), with those that a result hosts or without.
    """

    ended: bool
    tail: bool
    hosted: bool


PARTITIONS = [
    Partition(ended=False, tail=False, hosted=True),
    *(Partition(ended=True, tail=tail, hosted=hosted) for tail in (False, True) for hosted in (False, True)),
]
ONE_BY_ONE = len(PARTITIONS) + 1


class Chosen(NamedTuple):
    """The arenas `groups` on one device and scope, why there is each besides another, the number of the
    attempt, and the number of each arena in an assignment, None for a result.
    """

    held: CallBytes
    groups: Groups
    further: Sequence[FurtherArena | None]
    attempt: int
    numbers: Sequence[int | None] = ()


class Assignment(NamedTuple):
    """The buffers of each arena, in the order in which these are reserved; and the results that keep memory
    of their own.

    `further` says of each arena why it is not one with others, where it could be.
    """

    arenas: Sequence[Sequence[Buffer]]
    further: Sequence[FurtherArena | None]
    lone: Sequence[Buffer]
    chosen: Sequence[Chosen]

    @property
    def shapes(self) -> Sequence[Mapping[str, int]]:
        """The bindings that it was judged at."""
        grids = (one.held.table.grid for one in self.chosen)
        return [grid.binding(index) for grid in grids for index in range(len(grid))]

    @property
    def spread(self) -> float:
        """The most that all arenas take together, in multiples of their floor."""
        return max((one.held.spread(one.groups) for one in self.chosen), default=1.0)

    @property
    def attempt(self) -> int:
        """The number of the attempt that it is."""
        return max((one.attempt for one in self.chosen), default=0)

    def excess(self, sizes: Sequence[Expr] | None = None) -> float:
        """The bytes that a call takes beyond its limit, in units of what is allowed; arenas have `sizes`, or
        what is live at once in them.
        """
        found = 0.0
        for one in self.chosen:
            heights: dict[int, Values] = {}
            if sizes is not None:
                values = one.held.table.grid.values([ZERO if n is None else sizes[n] for n in one.numbers])
                heights = {i: values[i] for i, number in enumerate(one.numbers) if number is not None}
            found = max(found, one.held.excess(one.groups, heights))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Restrictions:
    """The things that an assignment must do without, as a plan of another was no good: in the memory of
    `excluded_results` nothing else lies, and attempts in front of the `first` are not made.  Arenas keep the
    limit of one buffer also at `shapes`.
    """

    excluded_results: frozenset[Var] = frozenset()
    first: int = 0
    shapes: tuple[Mapping[str, int], ...] = ()


UNRESTRICTED = Restrictions()


def assign(
    candidates: Candidates,
    bounds: ExtentBounds,
    options: PlanOptions,
    *,
    restrictions: Restrictions = UNRESTRICTED,
) -> Assignment:
    """Return the arenas of the buffers of a function; sample shapes keep within `bounds`."""
    return _Assigning(candidates, bounds, options, restrictions, [*restrictions.shapes]).run()


@dataclass(slots=True)
class _Assigning:
    """The assignment of `candidates`; `more` are bindings besides the samples at which too much was taken."""

    candidates: Candidates
    bounds: ExtentBounds
    options: PlanOptions
    restrictions: Restrictions
    more: list[Mapping[str, int]] = field(default_factory=list)

    def run(self) -> Assignment:
        buffers = self.candidates.buffers
        groups: list[tuple[Sequence[int], FurtherArena | None]] = []
        chosen: list[tuple[Sequence[int], Chosen]] = []
        for place in dict.fromkeys((b.device, b.scope) for b in buffers):
            members = [b.id for b in buffers if (b.device, b.scope) == place]
            here = [buffers[i] for i in members]
            one = self.chosen(self.steps(here))
            chosen.append((members, one))
            groups += zip(([members[i] for i in group] for group in one.groups), one.further, strict=True)
        groups.sort(key=lambda one: self.reserved_at(one[0]))
        alone = [len(group) == 1 and self.keeps(buffers[group[0]]) for group, _ in groups]
        kept = [one for one, lone in zip(groups, alone, strict=True) if not lone]
        numbers = {group[0]: number for number, (group, _) in enumerate(kept)}
        return Assignment(
            arenas=[[buffers[i] for i in sorted(group)] for group, _ in kept],
            further=[why for _, why in kept],
            lone=[buffers[group[0]] for (group, _), lone in zip(groups, alone, strict=True) if lone],
            chosen=[
                one._replace(numbers=[numbers.get(members[group[0]]) for group in one.groups])
                for members, one in chosen
            ],
        )

    def steps(self, buffers: Sequence[Buffer]) -> CallSteps:
        """Return when `buffers` are held, those of constant sizes in a constant arena where it is kept or
        reserved; where they must keep the limit of one buffer is looked at, too.
        """
        options, upper = self.options, self.candidates.cfg.function.declared_upper
        apart = not options.given and bool(options.kept or options.read_by or options.bounds == "reserve")
        most, early = options.most, options.given or options.order != "total"
        found = CallSteps(self.candidates, buffers, apart=apart, early=early, most=most)
        if most is not None:
            self.more += edges(list(dict.fromkeys(found.sizes)), upper, most)
        return found

    def held(self, steps: CallSteps) -> CallBytes:
        """Return what is taken at sample bindings and at `more`."""
        return CallBytes(steps, sample_table(steps.all_sizes, self.bounds, self.more))

    def reserved_at(self, group: Sequence[int]) -> tuple[int, str, int, int]:
        """Return the place of an arena and where it is reserved, in the order of the text."""
        buffers = [self.candidates.buffers[i] for i in group]
        point = self.candidates.cfg.reservation(b.made for b in buffers).point
        return buffers[0].device, buffers[0].scope, point, group[0]

    def chosen(self, steps: CallSteps) -> Chosen:
        """Return the arenas of the buffers of `steps`."""
        results = [[i] for i, b in enumerate(steps.buffers) if b.returned]
        hosts = [result for result in results if self.lends(steps.buffers[result[0]])]
        held = self.held(steps)
        planned = [i for i, b in enumerate(steps.buffers) if not b.returned]
        whole = _whole(held, planned)
        everything = [*results, *whole]
        if self.options.kept or not planned:
            return Chosen(held, everything, [None] * len(everything), 0)
        attempts = _Attempts(held, planned, whole, results, hosts)
        groups, attempt = attempts.best(self.restrictions.first)
        for _ in range(MOST_CHOICES - 1):
            shapes = self.worst(steps, groups)
            before, self.more = len(held.table.grid), [*self.more, *shapes]
            if shapes:
                held = self.held(steps)
            if len(held.table.grid) == before:  # nothing better is known for these
                break
            attempts = replace(attempts, held=held)
            groups, attempt = attempts.best(attempt)
        if self.options.order != "total":  # all may be held at once
            heights = sum(held.height(group) for group in groups if group[0] in planned)
            groups = everything if (heights > held.floor).any() else groups
        return Chosen(held, groups, _further(held, groups), attempt)

    def lends(self, result: Buffer) -> bool:
        """Return whether others may lie in the memory of a result."""
        return self.options.bounds != "reserve" and result.var not in self.restrictions.excluded_results

    def keeps(self, buffer: Buffer) -> bool:
        """Return whether it is a result with memory of its own, of the size that it has at each call."""
        bounded = self.options.bounds == "reserve" and self.candidates.cfg.function.bounded_results
        return buffer.returned and not (bounded and buffer.size != round_up(buffer.nbytes, ALIGNMENT))

    def worst(self, steps: CallSteps, groups: Groups) -> Sequence[Mapping[str, int]]:
        """Return shapes at which arenas take more than is allowed, the worst first."""
        sizes = steps.all_sizes

        def excesses(grid: Grid) -> tuple[Grid, Values] | None:
            table = SizeTable.at(grid, sizes).defined()
            if table is None:
                return None
            return table.grid, CallBytes(steps, table).over(groups)

        most = max(MOST_CELLS // max(len(steps), 1), FEWEST_SHAPES)
        return worst_shapes(symbols_of(sizes), self.bounds, excesses, most)


@dataclass(frozen=True)
class _Attempts:
    """Assignments of `planned` buffers by number, those to few arenas first: `whole` are as few as can be,
    `hosts` those of `results` in whose memory others may lie.
    """

    held: CallBytes
    planned: Sequence[int]
    whole: Groups
    results: Groups
    hosts: Groups

    def best(self, first: int) -> tuple[Groups, int]:
        """Return the first attempt, from the number `first` on, that keeps the limit with one arena more than
        there must be, else the fewest arenas that keep it, else the nearest; and its number.
        """
        nearest, few = (np.inf, 0), len(self.results) + len(self.whole) + 1
        found: tuple[Groups, int] = [*self.results, *self.whole], 0
        for number in range(min(first, ONE_BY_ONE), ONE_BY_ONE + 1):
            groups = self.made(number)
            if not groups or not all(map(self.held.fits, groups)):
                continue
            excess = max(self.held.excess(groups), 1.0), len(groups)
            if excess <= (1.0, few):
                return groups, number
            if excess < nearest:
                nearest, found = excess, (groups, number)
        return found

    def made(self, number: int) -> Groups:
        """Return the attempt of a number, none where it is no other than one before."""
        if number == 0:
            return [*self.results, *self.whole]
        if number == ONE_BY_ONE:
            hosts = self.hosts[:MOST_TRIED]
            fitted = _FirstFit(self.held, hosts).run(self.planned)
            rest = [*(result for result in self.results if result not in hosts), *fitted[: len(hosts)]]
            return [*rest, *_joined(self.held, fitted[len(hosts) :], rest)]
        if not self.held.steps.straight:
            return ()
        return self.divided(PARTITIONS[number - 1])

    @cached_property
    def cut(self) -> int:
        """The first step at which one arena for all takes too much, or where the last result is; 0 where
        there is none.
        """
        crowded = self.held.crowded([*self.results, *self.whole])
        begins = (self.held.steps.spans[result][0][0] for (result,) in self.results)
        return int(np.argmax(crowded)) or max(begins, default=0)

    @cached_property
    def host(self) -> Sequence[int]:
        """The largest of the results in whose memory others may lie; none where there is none."""
        return max(self.hosts, key=lambda one: float(self.held.bytes[one[0]].sum()), default=())

    @cached_property
    def order(self) -> Numbers:
        """The buffers of the largest of `whole` that are held at some step, as they come."""
        steps, members = self.held.steps, np.array(max(self.whole, key=len))
        members = members[steps.begins[members] >= 0]
        found: Numbers = members[np.lexsort((members, steps.begins[members]))]
        return found

    @cached_property
    def hosted(self) -> Numbers:
        """For each of `order` 1 if it may lie in the memory of `host`, else 0."""
        steps = self.held.steps
        return np.array([steps.may_share([*self.host, i]) for i in self.order.tolist()], dtype=np.int64)

    @cached_property
    def rooms(self) -> Values:
        """The bytes at each step that are left beside what stays as it is."""
        held, others = self.held, sorted(self.whole, key=len, reverse=True)[1:]
        return held.room - held.arenas(self.results) - held.arenas(others)

    def divided(self, way: Partition) -> Groups:
        """Return the buffers of the largest of `whole` divided in one way, none where that is not found."""
        held, steps, until = self.held, self.held.steps, self.cut - way.tail
        host = self.host if way.hosted else []
        behind = (steps.begins[self.order] >= until) & way.tail
        tail: list[int] = self.order[behind].tolist()
        if (way.ended and until <= 0) or (way.hosted and not host) or (way.tail and not tail):
            return ()
        members, *others = sorted(self.whole, key=len, reverse=True)
        rooms = self.rooms - held.arenas([tail]) if tail else self.rooms
        untils = [*[until] * way.ended, len(steps)]
        hosted = self.hosted[~behind] if host else 0
        found = _divided(held, self.order[~behind], untils, host, hosted, rooms)
        if found is None:
            return ()
        rest = [result for result in self.results if result != host]
        found[0] = sorted([*found[0], *(i for i in members if not steps.spans[i])])
        hosts = [[*host, *found.pop()]] if host else []
        return [*rest, *hosts, *others, *filter(None, [*found, tail])]


# -- one arena ---------------------------------------------------------------------------------------------


def _whole(held: CallBytes, planned: Sequence[int]) -> Groups:
    """Return few groups, in the order of the text, each of which may share an arena; those of grounded
    buffers as small as they can be.
    """
    steps = held.steps
    others = [i for i in planned if not steps.buffers[i].grounded]
    if others and steps.may_share(others) and held.fits(others):
        groups = [others]
    else:
        groups = _first_fit(held, sorted(others, key=lambda i: (steps.buffers[i].made, i)))
    grounded = sorted((i for i in planned if steps.buffers[i].grounded), key=lambda i: -held.weights[i])
    slots = _first_fit(held, grounded)
    return [*groups, *sorted(map(sorted, slots))]


def _first_fit(held: CallBytes, order: Iterable[int]) -> list[list[int]]:
    """Return groups of buffers, each of which is in the first that it may share."""
    groups: list[list[int]] = []
    for i in order:
        group = next((g for g in groups if held.steps.may_share([*g, i]) and held.fits([*g, i])), None)
        if group is None:
            groups.append([i])
        else:
            group.append(i)
    return groups


# -- arenas that end before results are made ---------------------------------------------------------------


def _divided(
    held: CallBytes,
    order: Numbers,
    untils: Sequence[int],
    host: Sequence[int],
    hosted: Numbers | int,
    rooms: Values,
) -> list[list[int]] | None:
    """Return the members of arenas that are held until the steps `untils`, and of the memory of `host`, in
    which those of `order` may lie that are `hosted`; None where none are found that are within `rooms`.
    """
    steps, bindings = held.steps, held.floor.size
    strips = [*untils, *(steps.spans[r][0][0] for r in host)]
    others = [*strips[: len(untils) - 1], *strips[len(untils) :]]
    late = order[steps.ends[order] > max(others)]
    heights = np.zeros((len(strips), bindings))
    if late.size:
        heights[len(untils) - 1] = held.height(late.tolist())
    heights[len(untils) :] = held.bytes[list(host)]
    allowed = np.full(order.size, (1 << len(untils)) - 1) | hosted << len(untils)
    kinds, sizes = held.distinct(order.tolist())
    most = MOST_SEARCHED // (bindings * max(len(order), 1) << len(strips) - 1)
    answer = packer_functions.strips(
        _numbers(steps.begins[order]),
        _numbers(steps.ends[order]),
        _numbers(allowed),
        _numbers(kinds),
        sizes.tobytes(),
        rooms.tobytes(),
        _numbers(strips),
        heights.tobytes(),
        _numbers([k >= len(untils) for k in range(len(strips))]),
        (1 / held.scale).tobytes(),
        max(most, FEWEST_STATES),
    )
    chosen = np.frombuffer(answer, dtype=np.int32)
    return [np.sort(order[chosen == k]).tolist() for k in range(len(strips))] if chosen.size else None


def _numbers(of: Numbers | Sequence[int]) -> bytes:
    return np.asarray(of, dtype=np.int32).tobytes()


# -- one by one --------------------------------------------------------------------------------------------


class _FirstFit:
    """Groups of buffers, largest first: each joins the group that grows least by it, or opens one.

    The first groups are those of `hosts`, which do not grow.  `room` is what is left of the limit at each
    step, where what is in no group counts as lying by itself.
    """

    def __init__(self, held: CallBytes, hosts: Groups) -> None:
        self.held, self.steps, self.hosts = held, held.steps, len(hosts)
        self.groups: list[list[int]] = []
        self.loads: list[Values] = []
        self.heights: list[Values] = []
        self.spans: list[Spans] = []
        self.room = held.room - held.load(range(len(self.steps.buffers)))
        self.work = 0
        for (host,) in hosts:
            self.open(host)

    def run(self, planned: Sequence[int]) -> Groups:
        """Return the groups; those that come last lie alone, where it is too much work to try them."""
        order = sorted(planned, key=lambda i: (self.held.weights[i], -i))
        while order and self.work <= MOST_WORK:
            i = order.pop()
            tried = range(min(len(self.groups), self.hosts + MOST_TRIED))
            growths = sorted((self.growth(n, i), n) for n in tried)
            if not any(self.join(number, i) for growth, number in growths if growth <= self.held.weights[i]):
                self.open(i)
        alone = [[i] for i in reversed(order)]
        return [*self.groups[: self.hosts], *map(sorted, self.groups[self.hosts :]), *alone]

    def growth(self, number: int, i: int) -> float:
        """By how much a group would grow."""
        load, size = self.loads[number], self.held.bytes[i]
        live = self.steps.buffers[i].live
        parts = [load[begin:end].max(axis=0, initial=0.0) for begin, end in live]
        self.work += size.size * (1 + sum(end - begin for begin, end in live))
        height = self.heights[number]
        most = np.maximum.reduce([height, *(part + size for part in parts)])
        return float(((most - height) / self.held.scale).sum())

    def open(self, i: int) -> None:
        """Give a buffer a group of its own."""
        load = np.zeros((self.steps.positions, self.room.shape[1]))
        _add(load, self.steps.buffers[i].live, self.held.bytes[i])
        self.groups.append([i])
        self.loads.append(load)
        self.heights.append(self.held.bytes[i])
        self.spans.append(self.steps.spans[i])

    def join(self, number: int, i: int) -> bool:
        """Put a buffer into a group where there is room for what that takes; return whether there is."""
        needed = self.spans[number] and self.steps.spans[i]  # on some path
        if not (needed and self.steps.may_join(self.groups[number], i)):
            return False
        self.work += 3 * self.room.size
        load, size, held = self.loads[number], self.held.bytes[i], self.steps.spans[i]
        both = [*self.groups[number], i]
        spans, grown, room = self.steps.reserved(both), load.copy(), self.room.copy()
        _add(grown, self.steps.buffers[i].live, size)
        height = grown.max(axis=0)
        if number < self.hosts and (height > self.heights[number]).any():
            return False
        _add(room, spans, -height)
        _add(room, self.spans[number], self.heights[number])
        _add(room, held, size)
        if (room < np.minimum(self.room, 0.0) - 0.5).any() or not self.held.fits(both):
            return False
        self.groups[number], self.loads[number], self.heights[number] = both, grown, height
        self.spans[number], self.room = spans, room
        return True


def _add(table: Values, spans: Spans, size: Values) -> None:
    for begin, end in spans:
        table[begin:end] += size


def _joined(held: CallBytes, groups: Groups, results: Groups) -> Groups:
    """Return `groups` with pairs joined as long as that keeps the limit."""
    room = held.room - held.arenas(results)
    found = [(list(group), held.arenas([group])) for group in groups]
    taken = sum((own for _, own in found), np.zeros_like(room))
    few = 1 < len(found) <= MOST_TRIED and bool((taken <= room).all())
    pairs = list(combinations(range(len(found)), 2)) if few else []
    while pairs:
        places = pairs.pop(0)
        (first, one), (second, other) = (found[number] for number in places)
        both = sorted([*first, *second])
        if not (held.steps.may_share(both) and held.fits(both)):
            continue
        together = held.arenas([both])
        joined = taken - one - other + together
        if (joined <= room).all():
            taken = joined
            found = [*(each for n, each in enumerate(found) if n not in places), (both, together)]
            pairs = list(combinations(range(len(found)), 2))
    return [group for group, _ in found]


# -- why there are several ---------------------------------------------------------------------------------


def _further(held: CallBytes, groups: Groups) -> Sequence[FurtherArena | None]:
    """Return for each arena behind the first why it is not one with that."""
    buffers = held.steps.buffers
    own = [number for number, group in enumerate(groups) if not buffers[group[0]].returned]
    own.sort(key=lambda number: min(buffers[i].made for i in groups[number]))
    found: list[FurtherArena | None] = [None] * len(groups)
    for number in own[1:]:
        both = sorted([*groups[own[0]], *groups[number]])
        if not held.steps.may_share(both):
            found[number] = FurtherArena(reason=_apart(buffers[groups[number][0]]))
            continue
        if not held.fits(both):
            found[number] = FurtherArena(reason=CAPPED)
            continue
        rest = [group for n, group in enumerate(groups) if n not in (own[0], number)]
        joined = [*rest, both]
        worst = int(np.argmax(held.over(joined)))
        saves = max(int((held.taken(joined) - held.taken(groups))[:, worst].max()), 0)
        at = held.table.grid.binding(worst) if saves else {}
        found[number] = FurtherArena(reason=SAVES if saves else LOOSE, saves=saves, at=at)
    return found


SAVES = "in one arena with the others a call takes more"
CAPPED = "one arena with the others takes more than one buffer may"
LOOSE = "in one arena with the others no tight stacking was found"


def _apart(buffer: Buffer) -> str:
    if buffer.grounded:
        return "its tensors start a storage"
    if buffer.known >= 0 and buffer.defined_by is not None:
        return f"its size is known behind `{buffer.defined_by.name}`"
    return "its tensors share with their like only"
