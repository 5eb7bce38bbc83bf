"""The bytes that a call takes over time on one device and scope, as arrays over sample bindings.

Time is cut into *columns*: one for each moment at which something begins to live or an If is decided, path
after path.  Between two of them what is taken only shrinks.  The *limit* is what the call takes at most where
every tensor has memory of its own from its first use to its last, results from their first use to the end: on
each path, at each binding.  A group of tensors that share an arena takes what they need at most, from where
the arena is reserved to the last use of one of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from symalloc.analysis.live_ranges import Intervals
from symalloc.planner.buffers.branch_limits import least_on_paths
from symalloc.planner.buffers.path_lifetimes import CalleeRange, PathLifetimes
from symalloc.planner.buffers.sample_shapes import bytes_at
from symalloc.planner.search.grid import Grid, Values
from symalloc.program.block_nesting import BlockNesting
from symalloc.size.expr import Expr

Columns = NDArray[np.int64]

FEW = 16  # tensors, which are added up one by one
NO_LIMIT = 1e300


class Held(NamedTuple):
    """The columns [begin, end) of one path during which memory is held."""

    path: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tensor as it counts here: its `number` in the lifetimes, the point `made` of its allocation, and the
    point behind which its size is known (-1 at entry).

    `kept`: it is a result, which outlives the call.  `lent`: a callee works in it, which would take memory of
    its own elsewhere.
    """

    number: int
    size: Expr
    made: int
    known: int = -1
    kept: bool = False
    lent: bool = False


class CalleeBytes(NamedTuple):
    """The bytes that a call of a function takes at each binding, whatever path it goes: at least without a
    plan, at most with one, and by how much less that is, at least, on one path.

    The arenas that its caller brings are left out.
    """

    least: Values
    most: Values
    spare: Values


class CallTimeline:
    """The bytes that tenants (by index) and arenas of them take; `bytes` has a row for each tenant's size.

    `profiles` tell what callees take.  `paths` are those by number: all of the text is not one of them.
    `loose` are tenants that keep memory of their own.
    """

    def __init__(
        self,
        tenants: Sequence[Tenant],
        paths: Sequence[PathLifetimes],
        nesting: BlockNesting,
        grid: Grid,
        profiles: Mapping[str, CallProfile],
    ) -> None:
        self.tenants, self.nesting, self.profiles = tenants, nesting, profiles
        self._heights: dict[tuple[int, ...], Values] = {}
        self._reserved: dict[tuple[int, ...], tuple[Held, ...]] = {}
        self.bytes = bytes_at([t.size for t in tenants], grid)
        known = [[(u.size, u.live) for u in path.unplanned if u.size is not None] for path in paths]
        self.paths = [number for number, path in enumerate(paths) if not path.text]
        self.starts: list[list[float]] = []
        self.steps: list[Columns] = []
        self.offsets = [0]
        for path in paths:
            lives = (
                *(path.lives[t.number] for t in tenants),
                *(live for _, live in path.unplanned),
                *(((position, position + 1),) for call in path.calls for position in _positions(call.live)),
            )
            at = {float(live[0][0]): path.steps[live[0][0]] for live in lives if live}
            at |= {_decided(path.steps, branch): branch for branch in path.tested.values()}
            starts = sorted(at)
            self.starts.append(starts)
            self.steps.append(np.array([at[start] for start in starts], dtype=np.int64))
            self.offsets.append(self.offsets[-1] + len(starts))
        self.made = [int(np.searchsorted(self.steps[0], t.made)) for t in tenants]
        self.held = [tuple(self._spans(t.number, paths)) for t in tenants]
        others = [(p, *one) for p, beside in enumerate(known) for one in beside]
        spans: list[tuple[Held, ...]] = [(self._span(p, live),) for p, _, live in others]
        sizes = bytes_at([size for _, size, _ in others], grid)
        self.loose: frozenset[int] = frozenset()
        self.elsewhere = np.zeros((self.offsets[-1], len(grid)))
        if any(path.merged for path in paths):
            self._set_apart(paths[0], spans, sizes)
        self.all_known = not self.loose and all(t.known < 0 for t in tenants)
        self.beside = self._summed(spans, sizes)
        self.need = self.load([i for i, t in enumerate(tenants) if not t.lent]) + self.beside
        called = [(column, self.profiles[c.name].at(grid, c)) for column, c in self._calls(paths)]
        for column, taken in called:
            self.need[column] += taken.least
        self.limit = self._limit(self.need, paths)
        self.scale = np.maximum(self.need.max(axis=0, initial=1.0), 1.0)
        for column, taken in called:
            as_here = self.need[column] - taken.least + taken.most + taken.spare
            self.limit[column] = np.maximum(self.limit[column], as_here)
            self.beside[column] += taken.most

    # -- columns -------------------------------------------------------------------------------------------

    def _set_apart(self, text: PathLifetimes, spans: list[tuple[Held, ...]], sizes: Values) -> None:
        """Leave out what lives on some paths through a part of the text and not on others.

        Such tensors keep memory of their own, and all of them may be there at once.
        """
        found = [
            i
            for i, t in enumerate(self.tenants)
            if self._outlives(self.held[i], t.made, text.lives[t.number])
        ]
        lives = [u.live for u in text.unplanned if u.size is not None]
        beside = [i for i, live in enumerate(lives) if self._outlives(spans[i], text.steps[live[0][0]], live)]
        self.loose = frozenset(found)
        self.elsewhere = self.load(found) + self._summed([spans[i] for i in beside], sizes[beside])
        for i in found:
            self.held[i] = ()
        for i in beside:
            spans[i] = ()

    def _outlives(self, held: Sequence[Held], made: int, live: Intervals) -> bool:
        """Return whether a tensor is live behind the block that it is made in, or in parts of the text."""
        begin, end = self.nesting.reservation((made,)).block
        columns = (step for _, first, last in held for step in self.steps[0][first:last].tolist())
        return len(live) > 1 or any(not begin <= step < end for step in columns)

    def _span(self, path: int, live: Intervals, least: float = 0.0) -> Held:
        starts, offset = self.starts[path], self.offsets[path]
        begin, end = live[0][0], max(live[-1][1] - 0.75, least)
        return Held(path, offset + bisect_left(starts, begin), offset + bisect_left(starts, end))

    def _spans(self, number: int, paths: Sequence[PathLifetimes]) -> Iterator[Held]:
        for index, path in enumerate(paths):
            if path.lives[number]:
                branch = path.tested.get(number)
                least = 0.0 if branch is None else _decided(path.steps, branch) + 0.25
                yield self._span(index, path.lives[number], least)

    def _calls(self, paths: Sequence[PathLifetimes]) -> Iterator[tuple[int, CalleeRange]]:
        """Yield the columns at which functions are called."""
        for number, path in enumerate(paths):
            for call in path.calls:
                for position in _positions(call.live) if call.name in self.profiles else ():
                    yield self.offsets[number] + bisect_left(self.starts[number], position), call

    def _limit(self, need: Values, paths: Sequence[PathLifetimes]) -> Values:
        limit = need.copy()
        for number, path in enumerate(paths):
            begin, end = self.offsets[number], self.offsets[number + 1]
            if begin == end:
                continue
            unknown = [self._span(number, u.live) for u in path.unplanned if u.size is None]
            limit[begin:end] = NO_LIMIT if path.text else need[begin:end].max(axis=0)
            if path.merged:
                least = least_on_paths(need, self.steps[number].tolist(), self.nesting)
                limit[begin:end] = np.maximum(least - self.elsewhere, need)
            for _, first, last in unknown:  # how much more is taken there than elsewhere nobody knows
                limit[first:last] = need[first:last]
        return limit

    def _summed(
        self, spans: Sequence[Iterable[Held]], sizes: Values, first: int = 0, last: int | None = None
    ) -> Values:
        """The sum of `sizes`, each while it is held, at the columns [first, last)."""
        last = self.offsets[-1] if last is None else last
        changes = np.zeros((last - first + 1, sizes.shape[1]))
        rows = [(row, one) for row, held in enumerate(spans) for one in held]
        if rows:
            numbers = [row for row, _ in rows]
            np.add.at(changes, [one.begin - first for _, one in rows], sizes[numbers])
            np.subtract.at(changes, [one.end - first for _, one in rows], sizes[numbers])
        summed: Values = changes.cumsum(axis=0)[:-1]
        return summed

    def load(self, members: Iterable[int], first: int = 0, last: int | None = None) -> Values:
        """The bytes of the given tenants, live at columns [first, last) only, at each of these columns."""
        chosen = list(members)
        last = self.offsets[-1] if last is None else last
        if len(chosen) > FEW:
            return self._summed([self.held[i] for i in chosen], self.bytes[chosen], first, last)
        load = np.zeros((last - first, self.bytes.shape[1]))
        for i in chosen:
            for _, begin, end in self.held[i]:
                load[begin - first : end - first] += self.bytes[i]
        return load

    @property
    def straight(self) -> bool:
        """True where the function does not branch."""
        return not self.nesting.cfg.joins

    # -- arenas --------------------------------------------------------------------------------------------

    def height(self, members: Sequence[int]) -> Values:
        """The size of an arena of the given tenants at each binding: as much as is live at one column."""
        key = tuple(members)
        if key not in self._heights:
            within = columns_of(one for i in key for one in self.held[i])
            alone = len(key) == 1
            self._heights[key] = self.bytes[key[0]] if alone else self.load(key, *within).max(0, initial=0.0)
        return self._heights[key]

    def reserved(self, members: Sequence[int]) -> tuple[Held, ...]:
        """The columns for which an arena of the given tenants is there."""
        if len(members) == 1:
            return self.held[members[0]]
        if not self.nesting.cfg.joins:
            return (Held(0, min(self.made[i] for i in members), max(self.held[i][0].end for i in members)),)
        key = tuple(members)
        if key not in self._reserved:
            self._reserved[key] = tuple(self._reservation(key))
        return self._reserved[key]

    def _reservation(self, members: Sequence[int]) -> Iterator[Held]:
        block, point = self.nesting.reservation(self.tenants[i].made for i in members)
        for path in self.paths:
            steps, offset = self.steps[path], self.offsets[path]
            if not _any_within(steps, block):
                continue
            begin = offset + int(np.searchsorted(np.maximum.accumulate(steps), point))
            end = max(self._end(path, i) for i in members)
            if begin < end:
                yield Held(path, begin, end)

    def extended(self, spans: Sequence[Held], members: Sequence[int], i: int) -> tuple[Held, ...]:
        """The same for `members`, for which an arena is there during `spans`, and one more."""
        if self.nesting.cfg.joins or len(spans) != 1:
            return self.reserved([*members, i])
        ((path, begin, end),) = spans
        return (Held(path, min(begin, self.made[i]), max(end, self.held[i][0].end)),)

    def _end(self, path: int, i: int) -> int:
        """The column up to which an arena is there for a tenant: to its last use, or to the If behind which
        it lies on another path.
        """
        held = next((one for one in self.held[i] if one.path == path), None)
        if held is not None:
            return held.end
        blocks = self.nesting.around(self.tenants[i].made)
        branch = next((b for b, block in blocks if not _any_within(self.steps[path], block)), None)
        if branch is None:
            return 0
        return self.offsets[path] + int((self.steps[path] <= branch).sum())

    def possible(self, members: Sequence[int]) -> bool:
        """Return whether all sizes are known where an arena of the given tenants is reserved."""
        if self.all_known or len(members) == 1:
            return True
        if not self.loose.isdisjoint(members):
            return False
        known = max(self.tenants[i].known for i in members)
        return known < 0 or known < self.nesting.reservation(self.tenants[i].made for i in members)[1]

    def taken(self, groups: Sequence[Sequence[int]], lent: Collection[int] = ()) -> Values:
        """The bytes that are taken at each column where each of `groups` has an arena; those `lent`, by
        index, are held all the while.
        """
        heights = np.array([self.height(group) for group in groups]).reshape(len(groups), self.limit.shape[1])
        always = [Held(path, self.offsets[path], self.offsets[path + 1]) for path in self.paths]
        held = [always if i in lent else self.reserved(group) for i, group in enumerate(groups)]
        return self._summed(held, heights) + self.beside

    def excess(self, groups: Sequence[Sequence[int]], lent: Collection[int] = ()) -> float:
        """By how much more is taken than the limit at worst, as a share of it; beyond 0 only."""
        over = self.taken(groups, lent) - self.limit
        return float((over / np.maximum(self.limit, 1.0)).max(initial=0.0))

    def spread(self, groups: Sequence[Sequence[int]]) -> float:
        """The bytes of arenas that are there together over those of the tensors in them, at worst.

        The memory of results counts in neither.
        """
        own = [group for group in groups if not self.tenants[group[0]].kept]
        taken = (self.taken(own) - self.beside).max(axis=0, initial=0.0)
        needed = self.load([i for group in own for i in group]).max(axis=0, initial=0.0)
        return float((taken / np.maximum(needed, 1.0)).max(initial=1.0))

    def tightened(self, planned: Sequence[int], results: Sequence[int]) -> CallTimeline:
        """Return the same where arenas are not to take more together than what lies in them."""
        found = copy(self)
        floor = self.load(planned).max(axis=0, initial=0.0)
        found.limit = np.minimum(self.limit, floor + self.taken([[i] for i in results]))
        return found

    def largest(self, bytes_at: Values) -> Values:
        """The most bytes at the columns of each path: a row for each path."""
        found = np.zeros((len(self.paths), bytes_at.shape[1]))
        for row, path in enumerate(self.paths):
            begin, end = self.offsets[path], self.offsets[path + 1]
            found[row] = bytes_at[begin:end].max(axis=0, initial=0.0)
        return found


@dataclass(frozen=True)
class CallProfile:
    """The memory that a call of a planned function takes, for its callers.

    `lent` are those of `groups`, by index, whose arenas the caller brings.
    """

    tenants: Sequence[Tenant]
    paths: Sequence[PathLifetimes]
    nesting: BlockNesting
    profiles: Mapping[str, CallProfile]
    groups: Sequence[Sequence[int]]
    lent: frozenset[int]
    _found: dict[tuple[tuple[int, ...], ...], CalleeBytes] = field(default_factory=dict)

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that it depends on, in order."""
        return tuple(sorted(frozenset().union(*(size.symbols for size in self.sizes))))

    @property
    def sizes(self) -> tuple[Expr, ...]:
        """All sizes, over symbols of the function."""
        return sizes_of(self.tenants, self.paths, self.profiles)

    def at(self, grid: Grid, call: CalleeRange) -> CalleeBytes:
        """Return what a call takes, at the bindings of its caller."""
        columns = np.maximum(grid.values([call.value(name) for name in self.symbols]), 0.0).T
        points = tuple(tuple(int(value) for value in point) for point in columns.tolist())
        found = self._found.get(points)
        if found is None:
            found = self._found[points] = self._at(Grid(names=self.symbols, points=points))
        return found

    def _at(self, grid: Grid) -> CalleeBytes:
        timeline = CallTimeline(self.tenants, self.paths, self.nesting, grid, self.profiles)
        own = [group for i, group in enumerate(self.groups) if i not in self.lent]
        most, need = timeline.largest(timeline.taken(own)), timeline.largest(timeline.need)
        if any(path.merged for path in self.paths):  # each path keeps the limit, whatever it is
            lent = np.array([timeline.height(self.groups[i]) for i in self.lent])
            spare = lent.reshape(-1, len(grid)).sum(axis=0)
            return CalleeBytes(timeline.limit.min(axis=0, initial=NO_LIMIT), most.max(axis=0), spare)
        return CalleeBytes(need.min(axis=0), most.max(axis=0), (need - most).min(axis=0))


def sizes_of(
    tenants: Iterable[Tenant], paths: Iterable[PathLifetimes], profiles: Mapping[str, CallProfile]
) -> tuple[Expr, ...]:
    """Return all sizes that a call depends on, the values of what callees depend on included."""
    found = dict.fromkeys(t.size for t in tenants)
    for path in paths:
        found.update(dict.fromkeys(u.size for u in path.unplanned if u.size is not None))
        known = (call for call in path.calls if call.name in profiles)
        found.update(dict.fromkeys(c.value(name) for c in known for name in profiles[c.name].symbols))
    return tuple(found)


def columns_of(spans: Iterable[Held]) -> tuple[int, int]:
    """Return the columns [first, last) that hold `spans`."""
    known = list(spans)
    return min((s.begin for s in known), default=0), max((s.end for s in known), default=0)


def _positions(live: Intervals) -> Iterator[int]:
    for begin, end in live:
        yield from range(begin, end)


def _decided(steps: Sequence[int], branch: int) -> float:
    """The moment at which an If is decided, in positions: in front of the first one behind it."""
    return next((number for number, step in enumerate(steps) if step > branch), len(steps)) - 0.5


def _any_within(steps: Columns, block: tuple[int, int]) -> bool:
    return bool(((steps >= block[0]) & (steps < block[1])).any())
