"""The bytes that a call takes over time on one device and scope, as arrays over sample bindings.

There is a row for each of its `CallColumns`.  The *limit* is what the call takes at most where
every tensor has memory of its own from its first use to its last, results from their first use to the end: on
each path, at each binding.  A group of tensors that share an arena takes what they need at most, from where
the arena is reserved to the last use of one of them.

Where the limit of each path is the same all along it, the most that is taken on it is all there is to
judge: then there is a row for each path, and none for each column is made before it is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from symalloc.planner.buffers.branch_limits import least_on_paths
from symalloc.planner.buffers.call_columns import CallColumns, Held, HeldBytes, bounds_of
from symalloc.planner.buffers.held_sums import HeldColumns, Numbers, held_sums
from symalloc.planner.buffers.native_timeline import NativeTimeline, native_timeline
from symalloc.planner.buffers.path_lifetimes import CalleeRange
from symalloc.planner.buffers.sample_shapes import SizeTable, symbols_of
from symalloc.planner.grid import EXACT, Grid, Values
from symalloc.size.expr import Expr

FEW = 16  # tensors, which are added up one by one
MANY = 2000  # tensors, of which few kinds are summed up as fast by numpy, and which take long to hand over
NO_LIMIT = 1e300


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

    `profiles` tell what callees take.  The first `judged` bindings have a limit and a floor; see `judged_at`.
    """

    def __init__(self, columns: CallColumns, table: SizeTable, profiles: Mapping[str, CallProfile]) -> None:
        self.columns, self.profiles = columns, profiles
        self.tenants, self.held, self.made = columns.tenants, columns.held, columns.made
        self.paths, self.offsets = columns.paths, columns.offsets
        self.straight, self.all_known = columns.straight, columns.all_known
        self.reserved, self.extended = columns.reserved, columns.extended
        self.possible, self.may_join = columns.possible, columns.may_join
        self.by_column, self.judged = False, table.values.shape[1]
        self._heights: dict[tuple[int, ...], Values] = {}
        self._own: tuple[list[tuple[int, ...]], Values] | None = None
        self._kept: tuple[list[tuple[int, ...]], Values] | None = None
        self._table, self._kinds = table, table.rows_of([t.size for t in columns.tenants])
        self.bytes: Values = table.values[self._kinds]
        # sums that may be rounded are made in the order of the tensors
        self._exact = bool(self.bytes.sum(axis=0).max(initial=0.0) <= EXACT)
        many = len(self.tenants) > MANY and self._exact
        self.native = None if many else native_timeline(columns, self.bytes, exact=self._exact)
        self._callees = [(column, profiles[call.name].at(table, call)) for column, call in columns.calls]
        by_path = self.native if columns.even and self._exact else None
        most = self.need if by_path is None else self._needed_on_paths(by_path)
        self.scale = np.maximum(most.max(axis=0, initial=1.0), 1.0)
        self._by_path = None if by_path is None else _ByPath(by_path, _limits(columns, most))

    @cached_property
    def beside(self) -> Values:
        """The bytes at each column of what is no tenant: what no plan places, and callees."""
        found = self._of(self.columns.beside)
        for column, taken in self._callees:
            found[column] += taken.most
        return found

    @property
    def any_beside(self) -> bool:
        """True where anything but tenants takes memory."""
        return self._by_path is None and bool(self.beside.any())

    @cached_property
    def need(self) -> Values:
        """The bytes at each column where every tensor has memory of its own."""
        found = self.load(self._needed)
        found += self._of(self.columns.beside)
        for column, taken in self._callees:
            found[column] += taken.least
        return found

    @property
    def _needed(self) -> list[int]:
        return [i for i, t in enumerate(self.tenants) if not t.lent]

    def _needed_on_paths(self, native: NativeTimeline) -> Values:
        """The most bytes on each path where every tensor has memory of its own."""
        if len(self.columns.spans) == 1:
            return native.height(self._needed)[None]
        return native.peaks([[i] for i in self._needed], ())

    @cached_property
    def limit(self) -> Values:
        """The bytes that may be taken at each column."""
        if self._by_path is not None:
            return np.repeat(self._by_path.limits, np.diff(self.offsets), axis=0)
        limit = self._limit(self.need, self._of(self.columns.apart))
        for column, taken in self._callees:
            as_here = self.need[column] - taken.least + taken.most + taken.spare
            limit[column] = np.maximum(limit[column], as_here)
        return limit

    def _of(self, others: Sequence[HeldBytes]) -> Values:
        """The bytes at each column of what is no tenant."""
        table = self._table
        if len(others) > FEW:
            held, everyone = HeldColumns.of([one.held for one in others]), np.arange(len(others))
            return self._summed(held, everyone, table.rows_of([one.size for one in others]), table.values)
        found = np.zeros((self.offsets[-1], table.values.shape[1]))
        _add(found, ((table.values[table.rows[one.size]], one.held) for one in others))
        return found

    def _limit(self, need: Values, apart: Values) -> Values:
        limit = np.empty_like(need)
        for number, (path, begin, end, unknown) in enumerate(self.columns.spans):
            if begin == end:
                continue
            limit[begin:end] = NO_LIMIT if path.text else need[begin:end].max(axis=0)
            if path.merged:
                steps = self.columns.steps[number]
                least = least_on_paths(need, steps, self.columns.nesting)
                limit[begin:end] = np.maximum(least - apart, need)
            for _, first, last in unknown:  # how much more is taken there than elsewhere nobody knows
                limit[first:last] = need[first:last]
        return limit

    def _summed(
        self,
        held: HeldColumns,
        members: Numbers,
        kinds: Numbers,
        sizes: Values,
        first: int = 0,
        last: int | None = None,
    ) -> Values:
        """The sum of `sizes`, of the kind of each of `members`, while held, at the columns [first, last)."""
        last = self.offsets[-1] if last is None else last
        places, owners = held.chosen(members)
        begins, ends = held.begins[places] - first, held.ends[places] - first
        return held_sums(begins, ends, kinds[owners], sizes, last - first)

    def load(self, members: Iterable[int], first: int = 0, last: int | None = None) -> Values:
        """The bytes of the given tenants, live at columns [first, last) only, at each of these columns."""
        chosen = list(members)
        last = self.offsets[-1] if last is None else last
        if self.native is not None:
            return self.native.load(chosen, first, last)
        if len(chosen) > FEW and self._exact:
            numbers = np.array(chosen)
            kinds = self._kinds[numbers]
            return self._summed(self.columns.held_columns, numbers, kinds, self._table.values, first, last)
        found = np.zeros((last - first, self.bytes.shape[1]))
        _add(found, ((self.bytes[i], self.held[i]) for i in chosen), first)
        return found

    def kinds_of(self, members: Numbers) -> tuple[Values, Numbers]:
        """The distinct sizes of tenants, a row for each, and the number of the one that each tenant has."""
        used, numbers = np.unique(self._kinds[members], return_inverse=True)
        return self._table.values[used], numbers

    # -- arenas --------------------------------------------------------------------------------------------

    def height(self, members: Sequence[int]) -> Values:
        """The size of an arena of the given tenants at each binding: as much as is live at one column."""
        key = tuple(members)
        if key not in self._heights:
            alone = len(key) == 1
            self._heights[key] = self.bytes[key[0]] if alone else self._height(key)
        return self._heights[key]

    def _height(self, members: Sequence[int]) -> Values:
        if self.native is not None:
            return self.native.height(members)
        if len(members) > FEW:
            within = self.columns.held_columns.bounds(np.array(members, dtype=np.int64))
        else:
            within = bounds_of(one for i in members for one in self.held[i])
        found: Values = self.load(members, *within).max(0, initial=0.0)
        return found

    def taken(self, groups: Sequence[Sequence[int]], lent: Collection[int] = ()) -> Values:
        """The bytes that are taken at each column where each of `groups` has an arena; those `lent`, by
        index, are held all the while.
        """
        if lent:
            found = self._arenas(groups, lent)
            found += self.beside
            return found
        kept = [tuple(group) for group in groups if self.tenants[group[0]].kept]
        if self._kept is None or self._kept[0] != kept:
            self._kept = kept, self._arenas(kept) + self.beside
        return self._kept[1] + self.own(groups)

    def _arenas(self, groups: Sequence[Sequence[int]], lent: Collection[int] = ()) -> Values:
        """The same of the arenas alone."""
        if self.native is not None:
            return self.native.arenas(groups, lent)
        found = self.load([group[0] for i, group in enumerate(groups) if len(group) == 1 and i not in lent])
        shared = [i for i, group in enumerate(groups) if len(group) > 1 or i in lent]
        always = [Held(path, self.offsets[path], self.offsets[path + 1]) for path in self.paths if lent]
        held = [always if i in lent else self.reserved(groups[i]) for i in shared]
        heights = [self.height(groups[i]) for i in shared]
        if len(shared) > FEW and self._exact:
            every = np.arange(len(shared))
            return found + self._summed(HeldColumns.of(held), every, every, np.array(heights))
        _add(found, zip(heights, held, strict=True))
        return found

    def over(self, groups: Sequence[Sequence[int]], lent: Collection[int] = ()) -> tuple[Values, Values]:
        """By how much more is taken than the limit, and that: at each column, or at worst on each path."""
        if self._by_path is None:
            over, limit = self.taken(groups, lent), self.limit
        else:
            over, limit = self._by_path.native.peaks(groups, lent), self._by_path.limits
        over -= limit
        return over, limit

    def excess(self, groups: Sequence[Sequence[int]], lent: Collection[int] = ()) -> float:
        """By how much more is taken than the limit at worst, as a share of it; beyond 0 only."""
        over, limit = self.over(groups, lent)
        if over.max(initial=0.0) <= 0.0:
            return 0.0
        over /= np.maximum(limit, 1.0)
        return float(over.max(initial=0.0))

    @cached_property
    def live(self) -> Values:
        """The bytes of tensors that are live at each column, results left out."""
        return self.load(self._planned)

    @property
    def _planned(self) -> list[int]:
        return [i for i, t in enumerate(self.tenants) if not t.kept]

    @cached_property
    def floor(self) -> Values:
        """The most bytes of tensors that are live at one column, results left out, at each binding."""
        if self._by_path is not None:
            return self._by_path.native.height(self._planned)
        found: Values = self.live.max(axis=0, initial=0.0)
        return found

    def limited(self, limit: Values, floor: Values) -> CallTimeline:
        """The same timeline with another limit and floor, `by_column`: no other says anything of it."""
        found = copy(self)
        found.limit, found.floor, found.by_column, found._by_path = limit, floor, True, None
        return found

    def judged_at(self, count: int) -> CallTimeline:
        """The same timeline with the first `count` bindings `judged`, and neither limit nor floor at others:
        what counts there is that tensors fit into the memory of results.
        """
        if count == self.bytes.shape[1]:
            return self
        found = copy(self)
        found.limit, found.floor, found.scale = self.limit.copy(), self.floor.copy(), self.scale.copy()
        found.limit[:, count:] = found.floor[count:] = NO_LIMIT
        found.scale[count:] = np.inf
        if self._by_path is not None:
            limits = self._by_path.limits.copy()
            limits[:, count:] = NO_LIMIT
            found._by_path = _ByPath(self._by_path.native, limits)
        found.judged = count
        return found

    def own(self, groups: Sequence[Sequence[int]]) -> Values:
        """The bytes at each column of the arenas that do not lie in the memory of results.

        Those of the groups that were asked for last are kept: who judges some asks for them again.
        """
        asked = [tuple(group) for group in groups if not self.tenants[group[0]].kept]
        if not asked:
            return self._arenas(asked)
        if self._own is None or self._own[0] != asked:
            self._own = asked, self._arenas(asked)
        return self._own[1]

    def spreads(self, groups: Sequence[Sequence[int]]) -> Values:
        """The most that arenas take together, in multiples of the floor, at each binding."""
        if self._by_path is None:
            own = self.own(groups)
        else:
            own = self._by_path.native.peaks([g for g in groups if not self.tenants[g[0]].kept], ())
        found: Values = own.max(axis=0, initial=0.0) / np.maximum(self.floor, 1.0)
        return found

    def spread(self, groups: Sequence[Sequence[int]]) -> float:
        """The largest of `spreads`, at least 1."""
        return float(self.spreads(groups).max(initial=1.0))

    def largest(self, bytes_at: Values) -> Values:
        """The most bytes at the columns of each path: a row for each path."""
        found = np.zeros((len(self.paths), bytes_at.shape[1]))
        for row, path in enumerate(self.paths):
            begin, end = self.offsets[path], self.offsets[path + 1]
            found[row] = bytes_at[begin:end].max(axis=0, initial=0.0)
        return found


class _ByPath(NamedTuple):
    """The library, which finds what is taken at most on each path, and the limit of each path."""

    native: NativeTimeline
    limits: Values


def _limits(columns: CallColumns, most: Values) -> Values:
    """Return the limit of each path, of which `most` is needed; there is none for all of the text."""
    limits = most.copy()
    limits[[span.path.text for span in columns.spans]] = NO_LIMIT
    return limits


def _add(found: Values, held: Iterable[tuple[Values, Sequence[Held]]], first: int = 0) -> None:
    """Add each size while it is held to `found`, whose first column is `first`."""
    for size, spans in held:
        for _, begin, end in spans:
            part = found[begin - first : end - first]
            part += size  # in place: an assignment to the slice would copy it


@dataclass(frozen=True)
class CallProfile:
    """The memory that a call of a planned function takes, for its callers.

    `lent` are those of `groups`, by index, whose arenas the caller brings.
    """

    columns: CallColumns
    profiles: Mapping[str, CallProfile]
    groups: Sequence[Sequence[int]]
    lent: frozenset[int]
    _found: dict[tuple[tuple[int, ...], ...], CalleeBytes] = field(default_factory=dict)

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that it depends on, in order."""
        return symbols_of(self.sizes)

    @cached_property
    def sizes(self) -> tuple[Expr, ...]:
        """All sizes, over symbols of the function."""
        return sizes_of(self.columns, self.profiles)

    def at(self, table: SizeTable, call: CalleeRange) -> CalleeBytes:
        """Return what a call takes, at the bindings of its caller."""
        rows = table.bytes_of([call.value(name) for name in self.symbols]).T
        points = tuple(tuple(int(value) for value in point) for point in rows.tolist())
        found = self._found.get(points)
        if found is None:
            found = self._found[points] = self._at(Grid(names=self.symbols, points=points))
        return found

    def _at(self, grid: Grid) -> CalleeBytes:
        timeline = CallTimeline(self.columns, SizeTable.at(grid, self.sizes), self.profiles)
        own = [group for i, group in enumerate(self.groups) if i not in self.lent]
        most, need = timeline.largest(timeline.taken(own)), timeline.largest(timeline.need)
        if self.columns.merged:  # each path keeps the limit, whatever it is
            lent = np.array([timeline.height(self.groups[i]) for i in self.lent])
            spare = lent.reshape(-1, len(grid)).sum(axis=0)
            return CalleeBytes(timeline.limit.min(axis=0, initial=NO_LIMIT), most.max(axis=0), spare)
        return CalleeBytes(need.min(axis=0), most.max(axis=0), (need - most).min(axis=0))


def sizes_of(columns: CallColumns, profiles: Mapping[str, CallProfile]) -> tuple[Expr, ...]:
    """Return all sizes that a call depends on, the values of what callees depend on included."""
    found = dict.fromkeys({id(t.size): t.size for t in columns.tenants}.values())  # most are one object
    found.update(dict.fromkeys(one.size for one in columns.beside))
    found.update(dict.fromkeys(one.size for one in columns.apart))
    known = (call for _, call in columns.calls)
    found.update(dict.fromkeys(c.value(name) for c in known for name in profiles[c.name].symbols))
    return tuple(found)
