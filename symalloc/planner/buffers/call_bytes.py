"""The bytes that a call holds at each step of its Timeline on one device and scope, as arrays over bindings.

The *limit* is what the call holds at most where every tensor has memory of its own: on each path, at each
binding.  It is kept with the tensors that packed functions make and without, as their memory may come from
elsewhere.  Buffers that share an arena take what they need at most, from where the arena is reserved until
nothing needs one of them any more on the path that is taken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np

from symalloc.analysis.register_machine import Step
from symalloc.planner.buffers.candidates import Candidates, padded_size
from symalloc.planner.grid import Numbers, SizeTable, Truths, Values, matrix_product
from symalloc.planner.memory_plan import Buffer
from symalloc.program.control_flow import PathCondition, ReservationPoint
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


class Moments(NamedTuple):
    """The memory that is held at the steps of a call, of which most comes again in each layer.

    A row stands for what is different: in `counts` how many buffers of each size have memory of their own, in
    `unplanned` how much no plan places, in `arenas` which of them are there, in `routes` the route that leads
    there.  `at` has the row of each step.
    """

    counts: Values
    unplanned: Values
    arenas: Values
    routes: Numbers
    at: Numbers

    @classmethod
    def of(cls, counts: Numbers, unplanned: Numbers, arenas: Numbers, routes: Numbers) -> Moments:
        """The moments of steps at which these things are held."""
        first, at = _alike(np.hstack((counts, unplanned, arenas, routes[:, np.newaxis])))
        of_each, others, there = (one[first].astype(np.float64) for one in (counts, unplanned, arenas))
        return cls(of_each, others, there, routes[first], at)


class CallSteps:
    """The steps at which `buffers`, by index, and arenas of them are held, and other memory.

    `sizes` are those of the buffers; `all_sizes` also those of memory that is none, once more where packed
    functions make it (`packed`).  With `apart` buffers of constant size share with their like only, with
    `early` those that are sized behind the same step; no arena takes more than `most`, or than its largest
    buffer.
    """

    def __init__(
        self,
        found: Candidates,
        buffers: Sequence[Buffer],
        *,
        apart: bool = False,
        early: bool = False,
        most: int | None = None,
    ) -> None:
        self.most = most
        self.buffers, self.cfg, timeline = buffers, found.cfg, found.timeline
        self.sizes = [_taken(buffer) for buffer in buffers]
        self.kinds = [
            (b.grounded, apart and b.size.as_constant is not None, early and b.known) for b in buffers
        ]
        self.has_late_sizes = any(b.known >= 0 for b in buffers)
        self.points = found.points
        placed = {buffer.var: -1 for buffer in found.buffers}
        placed.update((buffer.var, index) for index, buffer in enumerate(buffers))
        self.spans: list[list[tuple[int, int]]] = [[] for _ in buffers]
        others: list[tuple[Expr, bool]] = []
        self.other_spans: list[Spans] = []
        places = {(buffer.device, buffer.scope) for buffer in buffers}
        for one in timeline.reservations:
            type_ = one.var.type
            if isinstance(type_, TensorType) and (type_.device, type_.scope) not in places:
                continue
            index = placed.get(one.var) if one.frame.caller is None else None
            size = padded_size(one.size) if index is None else None
            if size is not None:
                others.append((size, one.packed))
                self.other_spans.append(((one.begin, one.end),))
            elif index is not None and index >= 0:
                self.spans[index].append((one.begin, one.end))
        own = [(size, False) for size in self.sizes]
        by_address = {(id(one[0]), one[1]): one for one in (*own, *others)}  # most are one object
        rows = {one: row for row, one in enumerate(dict.fromkeys(by_address.values()))}
        self.all_sizes = tuple(size for size, _ in rows)
        self.packed: Truths = np.array([packed for _, packed in rows], dtype=np.bool_)
        self.rows, self._other_rows = (
            np.array([rows[one] for one in each], dtype=np.int64) for each in (own, others)
        )
        self._made = np.array([b.made for b in buffers], dtype=np.int64)
        self.begins = np.array([own[0][0] if own else -1 for own in self.spans], dtype=np.int64)
        self.ends = np.array([own[-1][1] if own else 0 for own in self.spans], dtype=np.int64)
        numbers: dict[Route, int] = {}
        on_route = [numbers.setdefault(_route(step), len(numbers)) for step in timeline.steps]
        self.routes, self.on_route = list(numbers), np.array(on_route, dtype=np.int64)
        self._reserved: dict[tuple[int, ...], Spans] = {}
        self._moments: dict[Hashable, Moments] = {}
        self._live: dict[tuple[int, ...], Values] = {}
        self._begun: dict[ReservationPoint, Truths] = {}

    def __len__(self) -> int:
        return len(self.points)

    @property
    def straight(self) -> bool:
        """True where the function does not branch."""
        return not self.cfg.joins

    # -- what is held --------------------------------------------------------------------------------------

    @cached_property
    def _changes(self) -> Sequence[tuple[Numbers, Numbers]]:
        return _changes(self.spans)

    @cached_property
    def _lives(self) -> Sequence[tuple[Numbers, Numbers]]:
        return _changes([buffer.live for buffer in self.buffers])

    @cached_property
    def positions(self) -> int:
        """The number of positions of live ranges."""
        return max((end for buffer in self.buffers for _, end in buffer.live), default=0)

    def counts(self, members: Sequence[int]) -> Numbers:
        """The number of the given buffers that are held at each step, a column for each size."""
        return self._counts(self.rows, self._changes, len(self), members)

    @cached_property
    def unplanned(self) -> Numbers:
        """The number of what is held at each step that no plan places, a column for each size."""
        everything = range(len(self.other_spans))
        return self._counts(self._other_rows, _changes(self.other_spans), len(self), everything)

    def live(self, members: Sequence[int]) -> Values:
        """The numbers of the given buffers that are live together, a column for each size.

        Each row differs from the others.  By live ranges buffers are stacked: what is live on two paths is
        together there.
        """
        key = tuple(members)
        if key not in self._live:
            counts = self._counts(self.rows, self._lives, self.positions, members)
            self._live[key] = counts[_alike(counts)[0]].astype(np.float64)
        return self._live[key]

    def _counts(
        self, rows: Numbers, changes: Sequence[tuple[Numbers, Numbers]], count: int, members: Sequence[int]
    ) -> Numbers:
        wanted, columns = np.zeros(len(rows), dtype=np.bool_), len(self.all_sizes)
        wanted[list(members)] = True
        begun, ended = (
            np.bincount((at * columns + rows[owners])[wanted[owners]], minlength=(count + 1) * columns)
            for owners, at in changes
        )
        counts: Numbers = (begun - ended).reshape(count + 1, columns)[:-1].cumsum(axis=0)
        return counts

    def moments(self, alone: Sequence[int], shared: Groups = ()) -> Moments:
        """The moments at which buffers that lie `alone` are held, and arenas of those that are `shared`."""
        key = tuple(alone), tuple(map(tuple, shared))  # attempts have most in common, and bindings all
        if key not in self._moments:
            arenas = np.zeros((len(self), len(shared)), dtype=np.int64)
            for number, group in enumerate(shared):
                for begin, end in self.reserved(group):
                    arenas[begin:end, number] = 1
            self._moments[key] = Moments.of(self.counts(alone), self.unplanned, arenas, self.on_route)
        return self._moments[key]

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
            return ((begin, int(max(self.ends[of].max(), begin))),)
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
        numbers: dict[PathCondition, int] = {}
        paths, made = self.cfg.paths, (buffer.made for buffer in self.buffers)
        steps, own = ([numbers.setdefault(paths[p], len(numbers)) for p in at] for at in (self.points, made))
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


def _alike(steps: Numbers) -> tuple[Numbers, Numbers]:
    """The first of each kind of rows that are alike, and the number of its kind for each row."""
    narrow = steps.astype(np.int32)
    rows = narrow.view(f"V{narrow.itemsize * narrow.shape[1]}")[:, 0].tolist()
    known: dict[bytes, int] = {}
    of_each = [known.setdefault(row, step) for step, row in enumerate(rows)]
    first, at = np.unique(np.array(of_each, dtype=np.int64), return_inverse=True)
    return first, at


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
    """The bytes that buffers (by index) and arenas of them take at the points of `table`; `sizes` has a row
    for each size, and `bytes` for each buffer.
    """

    def __init__(self, steps: CallSteps, table: SizeTable) -> None:
        self.steps, self.table = steps, table
        self.sizes = table.bytes_of(steps.all_sizes)
        self._heights: dict[tuple[int, ...], Values] = {}

    @cached_property
    def bytes(self) -> Values:
        """The bytes of each buffer."""
        found: Values = self.sizes[self.steps.rows]
        return found

    @cached_property
    def accounts(self) -> Sequence[tuple[Values, Values]]:
        """All sizes with the bytes that the unplanned call takes on each route; and the same where packed
        functions take none.
        """
        steps, accounts = self.steps, []
        found = steps.moments(range(len(steps.buffers)))
        for sizes in (self.sizes, np.where(steps.packed[:, None], 0.0, self.sizes))[: 1 + steps.packed.any()]:
            limit = np.zeros((len(steps.routes), len(self.table.grid)))
            need = matrix_product(found.counts + found.unplanned, sizes)
            limit[found.routes] = limits(need, steps.routes, found.routes)
            accounts.append((sizes, limit))
        return accounts

    @cached_property
    def room(self) -> Values:
        """The bytes that may be taken at each step besides what no plan of the function places."""
        unplanned, at = self.steps.unplanned.astype(np.float64), self.steps.on_route
        found: Values = np.minimum.reduce(
            [(limit + _share(limit))[at] - matrix_product(unplanned, sizes) for sizes, limit in self.accounts]
        )
        return found

    @cached_property
    def scale(self) -> Values:
        """The most bytes that the unplanned call takes, at least one, at each binding."""
        found: Values = np.maximum(self.accounts[0][1].max(axis=0, initial=1.0), 1.0)
        return found

    @cached_property
    def weights(self) -> Sequence[float]:
        """The bytes of each buffer in multiples of that, over all bindings."""
        found: Sequence[float] = (self.bytes / self.scale).sum(axis=1).tolist()
        return found

    def load(self, members: Sequence[int]) -> Values:
        """The bytes of the given buffers that are held at each step."""
        moments = self.steps.moments(members)
        found: Values = matrix_product(moments.counts, self.sizes)[moments.at]
        return found

    def distinct(self, members: Sequence[int]) -> tuple[Numbers, Values]:
        """The row of the size of each member, and a row for each size."""
        rows, kinds = np.unique(self.steps.rows[list(members)], return_inverse=True)
        return kinds, self.sizes[rows]

    def live(self, members: Sequence[int]) -> Values:
        """The most bytes of the given buffers that are live together, at each binding."""
        found: Values = matrix_product(self.steps.live(members), self.sizes).max(axis=0, initial=0.0)
        return found

    def height(self, members: Sequence[int]) -> Values:
        """The size of an arena of the given buffers at each binding: as much as is live together, and no
        less than one that no path needs.
        """
        key = tuple(members)
        if key not in self._heights:
            found: Values = self.sizes[np.unique(self.steps.rows[list(key)])].max(axis=0, initial=0.0)
            self._heights[key] = np.maximum(found, self.live(key)) if len(key) > 1 else found
        return self._heights[key]

    def fits(self, members: Sequence[int]) -> bool:
        """Return whether an arena of the given buffers takes no more than it may, or than the largest of
        them, within declared bounds.
        """
        most = self.steps.most
        if most is None:
            return True
        allowed = np.maximum(self.bytes[list(members)].max(axis=0, initial=0.0), most)
        return bool((self.height(members) <= allowed)[self._declared].all())

    @cached_property
    def _declared(self) -> Truths:
        """The bindings that keep within the declared bounds."""
        grid, upper = self.table.grid, self.steps.cfg.function.declared_upper
        return np.array(
            [
                all(n <= upper.get(name, n) for name, n in zip(grid.names, point, strict=True))
                for point in grid.points
            ],
            dtype=np.bool_,
        )

    def _planned(self, groups: Groups, heights: Mapping[int, Values]) -> tuple[Values, Moments]:
        """The bytes of an arena for each of `groups` at each of the moments that there are."""
        lone = [len(group) == 1 and i not in heights for i, group in enumerate(groups)]
        shared = [i for i, alone in enumerate(lone) if not alone]
        alone = [group[0] for group, one in zip(groups, lone, strict=True) if one]
        moments = self.steps.moments(alone, [groups[i] for i in shared])
        found = matrix_product(moments.counts, self.sizes)
        if shared:
            sizes = [heights[i] if i in heights else self.height(groups[i]) for i in shared]
            found += matrix_product(moments.arenas, np.array(sizes))
        return found, moments

    def arenas(self, groups: Groups) -> Values:
        """The bytes at each step of an arena for each of `groups`."""
        found, moments = self._planned(groups, {})
        return found[moments.at]

    def taken(self, groups: Groups) -> Values:
        """The most bytes that a call takes at one step, in each account at each binding."""
        found, moments = self._planned(groups, {})
        each = (found + matrix_product(moments.unplanned, sizes) for sizes, _ in self.accounts)
        return np.array([one.max(axis=0, initial=0.0) for one in each])

    def over(self, groups: Groups, heights: Mapping[int, Values] = MappingProxyType({})) -> Values:
        """The most bytes that are taken beyond the limit at one step, at each binding, in units of what is
        allowed; arenas of `heights`, by index, are as large as these say.
        """
        found: Values = self._over(groups, heights)[0].max(axis=0, initial=0.0)
        return found

    def _over(self, groups: Groups, heights: Mapping[int, Values]) -> tuple[Values, Moments]:
        planned, moments = self._planned(groups, heights)
        over = []
        for sizes, limits_ in self.accounts:
            limit = limits_[moments.routes]
            over.append((planned + matrix_product(moments.unplanned, sizes) - limit) / _share(limit))
        return np.maximum.reduce(over), moments

    def crowded(self, groups: Groups) -> Truths:
        """The steps at which more is taken than is allowed, at some binding."""
        found, moments = self._over(groups, {})
        crowded: Truths = np.any(found > 1, axis=1)[moments.at]
        return crowded

    def excess(self, groups: Groups, heights: Mapping[int, Values] = MappingProxyType({})) -> float:
        """The largest of `over`: above 1 more is taken than is allowed."""
        return float(self.over(groups, heights).max(initial=0.0))

    @cached_property
    def floor(self) -> Values:
        """The most bytes of tensors that are live together, results left out, at each binding."""
        return self.live([i for i, b in enumerate(self.steps.buffers) if not b.returned])

    def spread(self, groups: Groups) -> float:
        """The most that arenas take together, results left out, in multiples of the floor, at least 1."""
        own = [group for group in groups if not self.steps.buffers[group[0]].returned]
        together = self._planned(own, {})[0].max(axis=0, initial=0.0)
        return float((together / np.maximum(self.floor, 1.0)).max(initial=1.0))


def _share(limit: Values) -> Values:
    """The bytes that may be taken beyond `limit`."""
    return np.maximum(SHARE * limit, SPARE)
