"""The bytes that a call holds at each step of its Timeline on one device and scope, as arrays over bindings.

The *limit* is what the call holds at most where every tensor has memory of its own: on each path, at each
binding.  Buffers that share an arena take what they need at most, from where the arena is reserved until
nothing needs one of them any more on the path that is taken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from symalloc.analysis.register_machine import Step
from symalloc.planner.buffers.candidates import Candidates
from symalloc.planner.buffers.sizing import padded_size
from symalloc.planner.grid import Truths, Values
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.shapes import Numbers, SizeTable
from symalloc.program.control_flow import ReservationPoint, Sides
from symalloc.program.types import ALIGNMENT, TensorType
from symalloc.size.expr import Expr, round_up

Groups: TypeAlias = Sequence[Sequence[int]]
"""The members of each arena, by index among the buffers of a call."""

Spans: TypeAlias = Sequence[tuple[int, int]]
"""The steps [begin, end) at which memory is held."""

Route: TypeAlias = tuple[tuple[int, int, bool], ...]
"""The branches that lead to a step, those of callers first: the call under way, the BRANCH, and the side."""

SHARE, SPARE = 0.02, 65536
"""A call may take more than the unplanned one by this share of it, or so many bytes, so that it has fewer
arenas.
"""


class CallSteps:
    """The steps at which `buffers`, by index, and arenas of them are held, and other memory.

    `sizes` are those of the buffers, `others` those of the memory that is none.  With `apart` buffers of
    constant size share with their like only.
    """

    def __init__(self, found: Candidates, buffers: Sequence[Buffer], *, apart: bool = False) -> None:
        self.buffers, self.cfg, timeline = buffers, found.cfg, found.timeline
        self.sizes = [_taken(buffer) for buffer in buffers]
        self.kinds = [(b.grounded, apart and b.size.as_constant is not None) for b in buffers]
        self.has_late_sizes = any(b.known >= 0 for b in buffers)
        self.points = found.points
        placed = {buffer.var: -1 for buffer in found.buffers}
        placed.update((buffer.var, index) for index, buffer in enumerate(buffers))
        self.spans: list[list[tuple[int, int]]] = [[] for _ in buffers]
        self.others: list[Expr] = []
        self.other_spans: list[Spans] = []
        places = {(buffer.device, buffer.scope) for buffer in buffers}
        for one in timeline.reservations:
            type_ = one.var.type
            if isinstance(type_, TensorType) and (type_.device, type_.scope) not in places:
                continue
            index = placed.get(one.var) if one.frame.caller is None else None
            size = padded_size(one.size) if index is None else None
            if size is not None:
                self.others.append(size)
                self.other_spans.append(((one.begin, one.end),))
            elif index is not None and index >= 0:
                self.spans[index].append((one.begin, one.end))
        self._made = np.array([b.made for b in buffers], dtype=np.int64)
        self._ends = np.array([own[-1][1] if own else 0 for own in self.spans], dtype=np.int64)
        numbers: dict[Route, int] = {}
        on_route = [numbers.setdefault(_route(step), len(numbers)) for step in timeline.steps]
        self.routes, self.on_route = list(numbers), np.array(on_route, dtype=np.int64)
        self._reserved: dict[tuple[int, ...], Spans] = {}
        self._begun: dict[ReservationPoint, Truths] = {}

    def __len__(self) -> int:
        return len(self.points)

    @property
    def straight(self) -> bool:
        """True where the function does not branch."""
        return not self.cfg.joins

    @property
    def all_sizes(self) -> tuple[Expr, ...]:
        """All sizes that a call depends on."""
        by_address = {id(size): size for size in (*self.sizes, *self.others)}  # most are one object
        return tuple(dict.fromkeys(by_address.values()))

    @cached_property
    def changes(self) -> Sequence[tuple[Numbers, Numbers]]:
        """The begins and the ends of the spans of all buffers; see `_changes`."""
        return _changes(self.spans)

    @cached_property
    def lives(self) -> Sequence[tuple[Numbers, Numbers]]:
        """The same of their live ranges, by which they are stacked: what is live on two paths is together
        there.
        """
        return _changes([buffer.live for buffer in self.buffers])

    @cached_property
    def positions(self) -> int:
        """The number of positions of live ranges."""
        return max((end for buffer in self.buffers for _, end in buffer.live), default=0)

    # -- arenas --------------------------------------------------------------------------------------------

    def reserved(self, members: Sequence[int]) -> Spans:
        """The steps at which an arena of the given buffers is there."""
        key = tuple(members)  # attempts have most arenas in common
        if key not in self._reserved:
            self._reserved[key] = self._reserved_for(key)
        return self._reserved[key]

    def _reserved_for(self, members: Sequence[int]) -> Spans:
        if len(members) == 1:
            return self.spans[members[0]]
        if self.straight:
            of = list(members)
            begin = bisect_left(self.points, self._made[of].min())
            return ((begin, int(max(self._ends[of].max(), begin))),)
        there = self._begun_at(self.cfg.reservation(self.buffers[i].made for i in members))
        edges = np.flatnonzero(np.diff(there & self._needed(members), prepend=False, append=False))
        return [(begin, end) for begin, end in edges.reshape(-1, 2).tolist()]

    @cached_property
    def _meet(self) -> Truths:
        """For each two routes whether a path may take both."""
        return _may_meet([((call, branch), side) for call, branch, side in route] for route in self.routes)

    @cached_property
    def _blocks(self) -> tuple[Numbers, Numbers, Truths]:
        """The block of each step and of each buffer, by number; for each two whether a path may take both."""
        numbers: dict[Sides, int] = {}
        sides, made = self.cfg.sides, (buffer.made for buffer in self.buffers)
        steps, own = ([numbers.setdefault(sides[p], len(numbers)) for p in at] for at in (self.points, made))
        return np.array(steps, dtype=np.int64), np.array(own, dtype=np.int64), _may_meet(numbers)

    def _begun_at(self, reservation: ReservationPoint) -> Truths:
        """The steps behind a reservation, on a path through it."""
        if reservation not in self._begun:
            points, ((begin, end), point) = np.array(self.points), reservation
            behind = (points >= max(begin, point)) & (points < end)
            first = np.full(len(self.routes), len(self))
            np.minimum.at(first, self.on_route[behind], np.flatnonzero(behind))
            met = np.where(self._meet, first, len(self)).min(axis=1, initial=len(self))
            self._begun[reservation] = np.arange(len(self)) >= met[self.on_route]
        return self._begun[reservation]

    def _needed(self, members: Sequence[int]) -> Truths:
        """The steps at which a buffer is held, or from which the text goes on to one, be it on a side that is
        not taken.
        """
        (blocks, own, meet), of = self._blocks, list(members)
        last = np.full(len(meet), -1)
        np.maximum.at(last, own[of], self._made[of])
        until = np.where(meet, last, -1).max(axis=1, initial=-1)
        needed: Truths = np.array(self.points) <= until[blocks]
        for begin, end in (span for i in members for span in self.spans[i]):
            needed[begin:end] = True
        return needed

    def may_share(self, members: Sequence[int]) -> bool:
        """Return whether buffers may share an arena: all sizes are known where it is reserved, all are
        grounded and never live at once, or none of them is, and all are of constant size, or none.
        """
        if len(members) == 1:
            return True
        if len({self.kinds[i] for i in members}) > 1:
            return False
        if self.buffers[members[0]].grounded:
            intervals = sorted(one for i in members for one in self.buffers[i].live)
            if any(before[1] > after[0] for before, after in pairwise(intervals)):
                return False
        if not self.has_late_sizes:
            return True
        known = max(self.buffers[i].known for i in members)
        return known < 0 or known < self.cfg.reservation(self.buffers[i].made for i in members).point

    def may_join(self, members: Sequence[int], i: int) -> bool:
        """The same for one more beside `members`, for which it is so."""
        if self.has_late_sizes or self.buffers[i].grounded:
            return self.may_share([*members, i])
        return self.kinds[i] == self.kinds[members[0]]


def _may_meet(blocks: Iterable[Iterable[tuple[Hashable, bool]]]) -> Truths:
    """For each two blocks, by the sides of Ifs that lead to them, whether a path may take both."""
    sides = [dict(block) for block in blocks]
    meet = [[all(b.get(test, side) is side for test, side in a.items()) for b in sides] for a in sides]
    return np.array(meet, dtype=np.bool_).reshape(len(sides), len(sides))


def _taken(buffer: Buffer) -> Expr:
    """The bytes that memory takes: no more is reserved for a result than it holds."""
    constant = buffer.returned and buffer.size.as_constant is not None
    return round_up(buffer.nbytes, ALIGNMENT) if constant else buffer.size


def _route(step: Step) -> Route:
    """The branches that lead to a step; the call under way is known by its identity, 0 for the outermost."""
    caller = step.frame.caller
    around, call = ((), 0) if caller is None else (_route(caller), id(step.frame))
    return (*around, *((call, branch, side) for branch, side in sorted(step.path)))


def _changes(spans: Sequence[Spans]) -> Sequence[tuple[Numbers, Numbers]]:
    """The begins of spans, and the ends: whose each is, and the steps, in order of these."""
    flat = [(owner, begin, end) for owner, own in enumerate(spans) for begin, end in own]
    owners, *both = np.array(flat, dtype=np.int64).reshape(-1, 3).T
    return [(owners[at.argsort()], np.sort(at)) for at in both]


# -- the limit on each path --------------------------------------------------------------------------------


def limits(need: Values, routes: Sequence[Route], on_route: Numbers) -> Values:
    """Return for each step the most bytes that are taken at some step on each path through it.

    `need` has a row for each step: what is taken there; `on_route` numbers the route of each.
    """
    root = _Block(np.zeros(need.shape[1]))
    blocks = []
    for number, route in enumerate(routes):
        block = root
        for call, branch, side in route:
            sides = block.ifs.setdefault((call, branch), {})
            block = sides.setdefault(side, _Block(np.zeros(need.shape[1])))
        block.own = need[on_route == number].max(axis=0)
        blocks.append(block)
    found = dict(root.limits(root.own))
    limit: Values = np.array([found[id(block)] for block in blocks]).reshape(-1, need.shape[1])[on_route]
    return limit


@dataclass(slots=True)
class _Block:
    """A block: what is taken at most outside the Ifs in it, and the sides of these, by call and BRANCH."""

    own: Values
    ifs: dict[tuple[int, int], dict[bool, _Block]] = field(default_factory=dict)

    def least(self) -> Values:
        """The bytes that each way through the block takes at some step."""
        found: Values = np.maximum.reduce([self.own, *map(_lesser, self.ifs.values())])
        return found

    def limits(self, around: Values) -> Iterator[tuple[int, Values]]:
        """Yield the limit of each block in here, by identity; `around` is taken outside."""
        others = {test: _lesser(sides) for test, sides in self.ifs.items()}
        here = np.maximum(around, self.own)
        yield id(self), np.maximum.reduce([here, *others.values()])
        for test, sides in self.ifs.items():
            rest = np.maximum.reduce([here, *(v for other, v in others.items() if other != test)])
            for side in sides.values():
                yield from side.limits(rest)


def _lesser(sides: Mapping[bool, _Block]) -> Values:
    """The bytes that both sides of an If take; none where one of them takes nothing."""
    least = [side.least() for side in sides.values()]
    found: Values = np.minimum.reduce(least) * (len(least) > 1)
    return found


# -- bytes -------------------------------------------------------------------------------------------------


class CallBytes:
    """The bytes that buffers (by index) and arenas of them take at the points of `table`; `bytes` has a row
    for the size of each buffer.
    """

    def __init__(self, steps: CallSteps, table: SizeTable) -> None:
        self.steps, self.table = steps, table
        self._kinds = table.rows_of(steps.sizes)
        self.bytes: Values = table.values[self._kinds]
        self._heights: dict[tuple[int, ...], Values] = {}

    @cached_property
    def unplanned(self) -> Values:
        """The bytes at each step of what no plan of the function places."""
        kinds = self.table.rows_of(self.steps.others)
        wanted = np.ones(len(kinds), dtype=np.bool_)
        return self._held(kinds, _changes(self.steps.other_spans), wanted, len(self.steps))

    @cached_property
    def limit(self) -> Values:
        """The bytes that the unplanned call takes on the path of each step."""
        need = self.load(range(len(self.steps.buffers))) + self.unplanned
        return limits(need, self.steps.routes, self.steps.on_route)

    @cached_property
    def allowed(self) -> Values:
        """The bytes that may be taken beyond the limit at each step."""
        return np.maximum(SHARE * self.limit, SPARE)

    def _held(
        self, kinds: Numbers, changes: Sequence[tuple[Numbers, Numbers]], wanted: Truths, count: int
    ) -> Values:
        """The bytes at each of `count` steps of what is `wanted` of what is held; `kinds` are the rows of its
        sizes.
        """
        steps, taken = np.arange(count), list[Values]()
        for owners, at in changes:
            chosen = wanted[owners]
            totals = np.zeros((np.count_nonzero(chosen) + 1, len(self.table.grid)))
            self.table.values[kinds[owners[chosen]]].cumsum(axis=0, out=totals[1:])
            taken.append(totals[at[chosen].searchsorted(steps, side="right")])
        begun, ended = taken
        begun -= ended
        return begun

    def load(self, members: Sequence[int]) -> Values:
        """The bytes of the given buffers that are held at each step."""
        return self._held(self._kinds, self.steps.changes, self._among(members), len(self.steps))

    def live(self, members: Sequence[int]) -> Values:
        """The most bytes of the given buffers that are live together, at each binding."""
        positions = self.steps.positions
        held = self._held(self._kinds, self.steps.lives, self._among(members), positions)
        most: Values = held.max(axis=0, initial=0.0)
        return most

    def _among(self, members: Sequence[int]) -> Truths:
        wanted = np.zeros(len(self.steps.buffers), dtype=np.bool_)
        wanted[list(members)] = True
        return wanted

    def distinct(self, members: Sequence[int]) -> tuple[Sequence[int], Values]:
        """The row of the size of each member, and a row for each size."""
        rows, kinds = np.unique(self._kinds[list(members)], return_inverse=True)
        return kinds.tolist(), self.table.values[rows]

    def height(self, members: Sequence[int]) -> Values:
        """The size of an arena of the given buffers at each binding: as much as is live together, and no
        less than one that no path needs.
        """
        key = tuple(members)
        if key not in self._heights:
            found: Values = self.bytes[list(key)].max(axis=0, initial=0.0)
            self._heights[key] = np.maximum(found, self.live(key)) if len(key) > 1 else found
        return self._heights[key]

    def arenas(self, groups: Groups, heights: Mapping[int, Values] = MappingProxyType({})) -> Values:
        """The bytes at each step of an arena for each of `groups`, by index: those of `heights` are as large
        as these say.
        """
        lone = [len(group) == 1 and i not in heights for i, group in enumerate(groups)]
        members = [group[0] for group, alone in zip(groups, lone, strict=True) if alone]
        found = self.load(members) if members else np.zeros((len(self.steps), len(self.table.grid)))
        for i, group in enumerate(groups):
            if not lone[i]:
                height = heights[i] if i in heights else self.height(group)
                for begin, end in self.steps.reserved(group):
                    found[begin:end] += height
        return found

    def over(self, groups: Groups, heights: Mapping[int, Values] = MappingProxyType({})) -> Values:
        """The bytes that are taken beyond the limit at each step, in units of what is allowed."""
        found = self.arenas(groups, heights)
        found += self.unplanned
        found -= self.limit
        found /= self.allowed
        return found

    def excess(self, groups: Groups, heights: Mapping[int, Values] = MappingProxyType({})) -> float:
        """The largest of `over`: above 1 more is taken than is allowed."""
        return float(self.over(groups, heights).max(initial=0.0))

    @cached_property
    def floor(self) -> Values:
        """The most bytes of tensors that are live together, results left out, at each binding."""
        return self.live([i for i, b in enumerate(self.steps.buffers) if not b.returned])

    @cached_property
    def spare(self) -> Values:
        """The bytes that several arenas may take beyond the floor, at each binding."""
        return np.maximum(SHARE * self.floor, SPARE)

    def together(self, groups: Groups) -> Values:
        """The most bytes that arenas take together, results left out, at each binding."""
        own = [group for group in groups if not self.steps.buffers[group[0]].returned]
        found: Values = self.arenas(own).max(axis=0, initial=0.0)
        return found

    def beyond_floor(self, groups: Groups) -> float:
        """The most bytes that arenas take together beyond the floor, in units of what is allowed."""
        return float(((self.together(groups) - self.floor) / self.spare).max(initial=0.0))

    def spread(self, groups: Groups) -> float:
        """The most that arenas take together, in multiples of the floor, at least 1."""
        return float((self.together(groups) / np.maximum(self.floor, 1.0)).max(initial=1.0))
