"""The bytes that a call takes over time on one device and scope, as arrays over sample bindings.

A *column* is a moment of a call at which something begins to live or an If is decided, path after path;
between two of them what is taken only shrinks.  The *limit* is what the call takes at most where every tensor
has memory of its own from its first use to its last, results from their first use to the end: on each path,
at each binding.  Buffers that share an arena take what they need at most, from where the arena is reserved to
the last use of one of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from symalloc.analysis.liveness import Intervals
from symalloc.planner.buffers.candidates import CalleeRange, PathLifetimes
from symalloc.planner.grid import Grid, Values
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.shapes import SizeTable, symbols_of
from symalloc.program.control_flow import BlockNesting, ReservationPoint
from symalloc.program.types import ALIGNMENT
from symalloc.size.expr import Expr, round_up


def least_on_paths(need: Values, steps: Sequence[int], nesting: BlockNesting) -> Values:
    """Return for each column the most bytes that are taken at some moment on each path through it.

    `need` has a row for each column: what is taken there; `steps` are their program points.
    """
    root = _Block(need.shape[1])
    blocks = []
    for step, row in zip(steps, need, strict=True):
        block = root
        for branch, span in nesting.around(step):
            block = block.side(branch, span)
        block.own = np.maximum(block.own, row)
        blocks.append(block)
    found = dict(root.limits(np.zeros(need.shape[1])))
    limits = [np.maximum(found[id(block)], row) for block, row in zip(blocks, need, strict=True)]
    return np.array(limits).reshape(need.shape)


@dataclass(slots=True)
class _Block:
    """A block: what is taken at most outside the Ifs in it, and the sides of these, by BRANCH and points."""

    bindings: int
    own: Values = field(init=False)
    ifs: dict[int, dict[tuple[int, int], _Block]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.own = np.zeros(self.bindings)

    def side(self, branch: int, span: tuple[int, int]) -> _Block:
        """One side of an If, made when it is first asked for."""
        return self.ifs.setdefault(branch, {}).setdefault(span, _Block(self.bindings))

    def least(self) -> Values:
        """The bytes that each way through the block takes at some moment."""
        found = self.own
        for sides in self.ifs.values():
            found = np.maximum(found, _lesser(sides))
        return found

    def limits(self, around: Values) -> Iterator[tuple[int, Values]]:
        """Yield the limit of each block in here, by identity; `around` is taken outside."""
        others = {branch: _lesser(sides) for branch, sides in self.ifs.items()}
        here = np.maximum(around, self.own)
        yield id(self), np.maximum.reduce([here, *others.values()])
        for branch, sides in self.ifs.items():
            rest = np.maximum.reduce([here, *(v for other, v in others.items() if other != branch)])
            for side in sides.values():
                yield from side.limits(rest)


def _lesser(sides: dict[tuple[int, int], _Block]) -> Values:
    """The bytes that both sides of an If take; none where one of them takes nothing."""
    if len(sides) < 2:
        (only,) = sides.values()
        return np.zeros(only.bindings)
    found: Values = np.minimum.reduce([side.least() for side in sides.values()])
    return found


Groups: TypeAlias = Sequence[Sequence[int]]
"""The members of each arena, by index among the buffers of a timeline."""

Numbers: TypeAlias = NDArray[np.int64]

SHARE, SPARE = 0.02, 65536
"""A call may take more than the unplanned one by this share of it, or so many bytes, so that it has fewer
arenas.
"""

NO_LIMIT = 1e300
BETWEEN = 2.0**-12  # positions between Ifs that are decided at one


class Held(NamedTuple):
    """The columns [begin, end) of one path during which memory is held."""

    path: int
    begin: int
    end: int


class HeldBytes(NamedTuple):
    """Bytes that are taken while they are held."""

    size: Expr
    held: tuple[Held, ...]


class CallColumns:
    """The columns of buffers, by index, and of arenas of them; `held` has those of each buffer.

    `paths` are those by number: all of the text is not one of them.  `unplanned` is memory that no plan
    places, and `calls` the columns at which functions of `known` names are called.  `path_dependent` are
    buffers that keep memory of their own, for they are live on some paths through a part of the text and not
    on others; `path_dependent_bytes` is what all of these may take at once, besides the limit.  With `apart`
    buffers of constant size share with their like only.
    """

    def __init__(
        self,
        buffers: Sequence[Buffer],
        paths: Sequence[PathLifetimes],
        nesting: BlockNesting,
        known: Container[str],
        *,
        apart: bool = False,
    ) -> None:
        self.buffers, self.nesting, self.lifetimes = buffers, nesting, paths
        self.sizes = [_taken(buffer) for buffer in buffers]
        self.kinds = [(b.grounded, apart and b.size.as_constant is not None) for b in buffers]
        self.paths = [number for number, path in enumerate(paths) if not path.text]
        self.starts: list[list[float]] = []
        self.steps: list[list[int]] = []
        self.offsets = [0]
        self.decided = [_decided(path.steps, path.tested.values()) for path in paths]
        for path, decided in zip(paths, self.decided, strict=True):
            at = _moments(path, buffers) | {moment: branch for branch, moment in decided.items()}
            starts = sorted(at)
            self.starts.append(starts)
            self.steps.append([at[start] for start in starts])
            self.offsets.append(self.offsets[-1] + len(starts))
        self._sorted = [sorted(steps) for steps in self.steps]
        self._latest = [list(accumulate(steps, max)) for steps in self.steps]
        self._begins: dict[ReservationPoint, Sequence[tuple[int, int, int]]] = {}
        self._past: dict[tuple[tuple[int, tuple[int, int]], ...], Sequence[int]] = {}
        self.made = [bisect_left(self.steps[0], b.made) for b in buffers]
        self.held = [tuple(self._spans(b.id, paths)) for b in buffers]
        self.unplanned = [
            HeldBytes(u.size, (self._span(number, u.live),))
            for number, path in enumerate(paths)
            for u in path.unplanned
            if u.size is not None
        ]
        self.path_dependent: frozenset[int] = frozenset()
        self.path_dependent_bytes: Sequence[HeldBytes] = ()
        self.merged = any(path.merged for path in paths)
        if self.merged:
            self._set_apart(paths[0])
        self.has_late_sizes = any(b.known >= 0 for b in buffers)
        self.calls = list(self._calls(paths, known))

    def __len__(self) -> int:
        return self.offsets[-1]

    @property
    def straight(self) -> bool:
        """True where the function does not branch."""
        return not self.nesting.cfg.joins

    @cached_property
    def _flat(self) -> tuple[Numbers, Numbers, Numbers]:
        """The spans of all buffers: whose each is, its begin, and its end."""
        return _flat(self.held)

    def spans_of(self, members: Sequence[int]) -> tuple[Numbers, Numbers, Numbers]:
        """The spans of `members`: whose each is, by index among all, its begin, and its end."""
        owners, begins, ends = self._flat
        wanted = np.zeros(len(self.held), dtype=np.bool_)
        wanted[list(members)] = True
        chosen = wanted[owners]
        return owners[chosen], begins[chosen], ends[chosen]

    def _set_apart(self, text: PathLifetimes) -> None:
        """Leave out what lives on some paths through a part of the text and not on others."""
        found = [
            i for i, b in enumerate(self.buffers) if self._outlives(self.held[i], b.made, text.lives[b.id])
        ]
        lives = [u.live for u in text.unplanned if u.size is not None]
        others = [
            i
            for i, live in enumerate(lives)
            if self._outlives(self.unplanned[i].held, text.steps[live[0][0]], live)
        ]
        self.path_dependent = frozenset(found)
        self.path_dependent_bytes = [
            *(HeldBytes(self.sizes[i], self.held[i]) for i in found),
            *(self.unplanned[i] for i in others),
        ]
        for i in found:
            self.held[i] = ()
        for i in others:
            self.unplanned[i] = self.unplanned[i]._replace(held=())

    def _outlives(self, held: Sequence[Held], made: int, live: Intervals) -> bool:
        """Return whether a tensor is live behind the block that it is made in, or in parts of the text."""
        begin, end = self.nesting.reservation((made,)).block
        columns = (step for _, first, last in held for step in self.steps[0][first:last])
        return len(live) > 1 or any(not begin <= step < end for step in columns)

    def _span(self, path: int, live: Intervals, least: float = 0.0) -> Held:
        starts, offset = self.starts[path], self.offsets[path]
        begin, end = live[0][0], max(live[-1][1] - 0.75, least)
        return Held(path, offset + bisect_left(starts, begin), offset + bisect_left(starts, end))

    def _spans(self, number: int, paths: Sequence[PathLifetimes]) -> Iterator[Held]:
        for index, path in enumerate(paths):
            if path.text:
                yield from (self._span(index, (interval,)) for interval in path.lives[number])
            elif path.lives[number]:
                branch = path.tested.get(number)
                least = 0.0 if branch is None else self.decided[index][branch] + BETWEEN / 2
                yield self._span(index, path.lives[number], least)

    def _calls(
        self, paths: Sequence[PathLifetimes], known: Container[str]
    ) -> Iterator[tuple[int, CalleeRange]]:
        for number, path in enumerate(paths):
            for call in path.calls:
                for position in _positions(call.live) if call.name in known else ():
                    yield self.offsets[number] + bisect_left(self.starts[number], position), call

    # -- arenas --------------------------------------------------------------------------------------------

    def reserved(self, members: Sequence[int]) -> tuple[Held, ...]:
        """The columns for which an arena of the given buffers is there."""
        if len(members) == 1:
            return self.held[members[0]]
        if self.straight:
            held = [self.held[i][0].end for i in members if self.held[i]]
            return (Held(0, min(self.made[i] for i in members), max(held, default=0)),)
        return tuple(self._reservation(members))

    def _reservation(self, members: Sequence[int]) -> Iterator[Held]:
        reservation = self.nesting.reservation([self.buffers[i].made for i in members])
        begins = self._begins.get(reservation)
        if begins is None:
            begins = self._begins[reservation] = list(self._begins_of(reservation))
        ends = [self._ends_of(i) for i in members]
        for place, path, begin in begins:
            end = max([there[place] for there in ends])
            if begin < end:
                yield Held(path, begin, end)

    def _begins_of(self, reservation: ReservationPoint) -> Iterator[tuple[int, int, int]]:
        """Yield the paths on which an arena is reserved, by place and number, and the column it is at."""
        block, point = reservation
        for place, path in enumerate(self.paths):
            if _any_within(self._sorted[path], block):
                yield place, path, self.offsets[path] + bisect_left(self._latest[path], point)

    def _ends_of(self, i: int) -> Sequence[int]:
        """The column on each of `paths` up to which an arena is there for a buffer: to its last use, or to
        the If behind which it lies on another path.
        """
        there = {path: end for path, _, end in reversed(self.held[i])}
        passed = self._passed(tuple(self.nesting.around(self.buffers[i].made)))
        return [there.get(path, end) for path, end in zip(self.paths, passed, strict=True)]

    def _passed(self, blocks: tuple[tuple[int, tuple[int, int]], ...]) -> Sequence[int]:
        """The column on each of `paths` that goes past one of `blocks` at which that is decided; else 0."""
        found = self._past.get(blocks)
        if found is None:
            found = self._past[blocks] = [self._past_on(path, blocks) for path in self.paths]
        return found

    def _past_on(self, path: int, blocks: Iterable[tuple[int, tuple[int, int]]]) -> int:
        steps = self._sorted[path]
        branch = next((b for b, block in blocks if not _any_within(steps, block)), None)
        return 0 if branch is None else self.offsets[path] + bisect_right(steps, branch)

    def may_share(self, members: Sequence[int]) -> bool:
        """Return whether buffers may share an arena: all sizes are known where it is reserved, all are
        grounded and never live at once, or none of them is, and all are of constant size, or none.
        """
        if len(members) == 1:
            return True
        if not self.path_dependent.isdisjoint(members) or len({self.kinds[i] for i in members}) > 1:
            return False
        if self.buffers[members[0]].grounded:
            intervals = sorted(one for i in members for one in self.buffers[i].live)
            if any(before[1] > after[0] for before, after in pairwise(intervals)):
                return False
        return self._known_in_time(members)

    def may_join(self, members: Sequence[int], i: int) -> bool:
        """The same for one more beside `members`, for which it is so."""
        if self.has_late_sizes or self.buffers[i].grounded:
            return self.may_share([*members, i])
        if i in self.path_dependent or members[0] in self.path_dependent:
            return False
        return self.kinds[i] == self.kinds[members[0]]

    def _known_in_time(self, members: Sequence[int]) -> bool:
        """Return whether all sizes are known where an arena of the given buffers is reserved."""
        known = max(self.buffers[i].known for i in members) if self.has_late_sizes else -1
        return known < 0 or known < self.nesting.reservation(self.buffers[i].made for i in members)[1]


def _taken(buffer: Buffer) -> Expr:
    """The bytes that memory takes: no more is reserved for a result than it holds."""
    constant = buffer.returned and buffer.size.as_constant is not None
    return round_up(buffer.nbytes, ALIGNMENT) if constant else buffer.size


def _moments(path: PathLifetimes, buffers: Iterable[Buffer]) -> dict[float, int]:
    """The positions on a path at which something begins, with the program point of each."""
    lives = (
        *(path.lives[b.id] for b in buffers),
        *(live for _, live in path.unplanned),
        *(((position, position + 1),) for call in path.calls for position in _positions(call.live)),
    )
    found = {float(live[0][0]): path.steps[live[0][0]] for live in lives if live}
    if path.text:
        found |= {float(begin): path.steps[begin] for live in lives for begin, _ in live}
    return found


def _positions(live: Intervals) -> Iterator[int]:
    for begin, end in live:
        yield from range(begin, end)


def _decided(steps: Sequence[int], branches: Iterable[int]) -> dict[int, float]:
    """The moment at which each If is decided, in positions: in front of the first one behind it, one If after
    the other.
    """
    found: dict[int, float] = {}
    last = -1.0
    for branch in sorted(set(branches)):
        behind = next((number for number, step in enumerate(steps) if step > branch), len(steps))
        last = found[branch] = max(behind - 0.5, last + BETWEEN)
    return found


def _any_within(steps: Sequence[int], block: tuple[int, int]) -> bool:
    """Return whether one of `steps`, which are in order, lies in a block."""
    return bisect_left(steps, block[0]) < bisect_left(steps, block[1])


def _flat(held: Sequence[Sequence[Held]]) -> tuple[Numbers, Numbers, Numbers]:
    flat = np.array(
        [(owner, begin, end) for owner, spans in enumerate(held) for _, begin, end in spans], dtype=np.int64
    ).reshape(-1, 3)
    return flat[:, 0], flat[:, 1], flat[:, 2]


# -- bytes -------------------------------------------------------------------------------------------------


class CalleeBytes(NamedTuple):
    """The bytes that a call of a function takes at each binding, whatever path it goes: at least without a
    plan, at most with one, and by how much less that is, at least, on one path.

    The arenas that its caller brings are left out.
    """

    least: Values
    most: Values
    spare: Values


class CallTimeline:
    """The bytes that buffers (by index) and arenas of them take at the points of `table`; `bytes` has a row
    for the size of each buffer.

    `profiles` tell what callees take.
    """

    def __init__(self, columns: CallColumns, table: SizeTable, profiles: Mapping[str, CallProfile]) -> None:
        self.columns, self.table = columns, table
        self._kinds = table.rows_of(columns.sizes)
        self.bytes: Values = table.values[self._kinds]
        self._callees = [(column, profiles[call.name].at(table, call)) for column, call in columns.calls]
        self._results: tuple[Groups, Values] = ((), np.zeros(0))

    @cached_property
    def unplanned(self) -> Values:
        """The bytes at each column of what no plan places, and of callees."""
        found = self._of(self.columns.unplanned)
        for column, taken in self._callees:
            found[column] += taken.most
        return found

    @cached_property
    def need(self) -> Values:
        """The bytes at each column where every tensor has memory of its own."""
        found = self.load([i for i, b in enumerate(self.columns.buffers) if b.callee is None])
        found += self._of(self.columns.unplanned)
        for column, taken in self._callees:
            found[column] += taken.least
        return found

    @cached_property
    def limit(self) -> Values:
        """The bytes that the unplanned call takes on the path of each column."""
        need, columns = self.need, self.columns
        limit = np.empty_like(need)
        for number, path in enumerate(columns.lifetimes):
            begin, end = columns.offsets[number : number + 2]
            if begin == end:
                continue
            limit[begin:end] = NO_LIMIT if path.text else need[begin:end].max(axis=0)
            if path.merged:
                least = least_on_paths(need, columns.steps[number], columns.nesting)
                limit[begin:end] = np.maximum(least - self._of(columns.path_dependent_bytes), need)
        for column, taken in self._callees:
            as_here = need[column] - taken.least + taken.most + taken.spare
            limit[column] = np.maximum(limit[column], as_here)
        return limit

    @cached_property
    def allowed(self) -> Values:
        """The bytes that may be taken beyond the limit at each column."""
        return np.maximum(SHARE * self.limit, SPARE)

    def _of(self, others: Sequence[HeldBytes]) -> Values:
        """The bytes at each column of what is no buffer."""
        owners, begins, ends = _flat([one.held for one in others])
        kinds = self.table.rows_of([one.size for one in others])
        return held_sums(begins, ends, kinds[owners], self.table.values, len(self.columns))

    def load(self, members: Sequence[int]) -> Values:
        """The bytes of the given buffers that are live at each column."""
        owners, begins, ends = self.columns.spans_of(members)
        return held_sums(begins, ends, self._kinds[owners], self.table.values, len(self.columns))

    def distinct(self, members: Sequence[int]) -> tuple[Sequence[int], Values]:
        """The row of the size of each member, and a row for each size."""
        rows, kinds = np.unique(self._kinds[list(members)], return_inverse=True)
        return kinds.tolist(), self.table.values[rows]

    def height(self, members: Sequence[int]) -> Values:
        """The size of an arena of the given buffers at each binding: as much as is live at one column."""
        if len(members) == 1:
            row: Values = self.bytes[members[0]]
            return row
        found: Values = self.load(members).max(axis=0, initial=0.0)
        return found

    def arenas(
        self, groups: Groups, lent: Collection[int] = (), heights: Mapping[int, Values] = MappingProxyType({})
    ) -> Values:
        """The bytes at each column of an arena for each of `groups`, by index: those `lent` are held all the
        while, and those of `heights` are as large as these say.
        """
        columns = self.columns
        always = [Held(path, *columns.offsets[path : path + 2]) for path in columns.paths if lent]
        lone = [len(group) == 1 and not {i} & {*lent, *heights} for i, group in enumerate(groups)]
        found = self.load([group[0] for group, alone in zip(groups, lone, strict=True) if alone])
        for i, group in enumerate(groups):
            if not lone[i]:
                height = heights[i] if i in heights else self.height(group)
                for _, begin, end in always if i in lent else columns.reserved(group):
                    found[begin:end] += height
        return found

    def over(
        self, groups: Groups, lent: Collection[int] = (), heights: Mapping[int, Values] = MappingProxyType({})
    ) -> Values:
        """The bytes that are taken beyond the limit at each column, in units of what is allowed."""
        found = self.arenas(groups, lent, heights)
        found += self.unplanned
        found -= self.limit
        found /= self.allowed
        return found

    def excess(
        self, groups: Groups, lent: Collection[int] = (), heights: Mapping[int, Values] = MappingProxyType({})
    ) -> float:
        """The largest of `over`: above 1 more is taken than is allowed."""
        return float(self.over(groups, lent, heights).max(initial=0.0))

    @cached_property
    def floor(self) -> Values:
        """The most bytes of tensors that are live at one column, results left out, at each binding."""
        planned = [i for i, b in enumerate(self.columns.buffers) if not b.returned]
        found: Values = self.load(planned).max(axis=0, initial=0.0)
        return found

    @cached_property
    def spare(self) -> Values:
        """The bytes that several arenas may take beyond the floor, at each binding."""
        return np.maximum(SHARE * self.floor, SPARE)

    def together(self, groups: Groups) -> Values:
        """The most bytes that arenas take together, results left out, at each binding."""
        own = [group for group in groups if not self.columns.buffers[group[0]].returned]
        found: Values = self.arenas(own).max(axis=0, initial=0.0)
        return found

    def beyond_floor(self, groups: Groups) -> float:
        """The most bytes that arenas take together beyond the floor, in units of what is allowed."""
        return float(((self.together(groups) - self.floor) / self.spare).max(initial=0.0))

    def spread(self, groups: Groups) -> float:
        """The most that arenas take together, in multiples of the floor, at least 1."""
        return float((self.together(groups) / np.maximum(self.floor, 1.0)).max(initial=1.0))

    def largest(self, bytes_at: Values) -> Values:
        """The most bytes at the columns of each path: a row for each path."""
        offsets = self.columns.offsets
        spans = [(offsets[path], offsets[path + 1]) for path in self.columns.paths]
        found = [bytes_at[begin:end].max(axis=0, initial=0.0) for begin, end in spans]
        return np.array(found).reshape(len(spans), -1)


def held_sums(begins: Numbers, ends: Numbers, kinds: Numbers, sizes: Values, count: int) -> Values:
    """Return the sum of sizes at each of `count` columns: a row of `sizes`, by its kind, while it is held."""
    changes = np.zeros((count + 1, sizes.shape[1]))
    np.add.at(changes, begins, sizes[kinds])
    np.subtract.at(changes, ends, sizes[kinds])
    found: Values = changes.cumsum(axis=0)[:-1]
    return found


@dataclass(frozen=True)
class CallProfile:
    """The memory that a call of a planned function takes, for its callers.

    `lent` are those of `groups`, by index, whose arenas the caller brings.
    """

    columns: CallColumns
    profiles: Mapping[str, CallProfile]
    groups: Groups
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
        most, need = (
            timeline.largest(timeline.arenas(own) + timeline.unplanned),
            timeline.largest(timeline.need),
        )
        if self.columns.merged:  # each path keeps the limit, whatever it is
            lent = np.array([timeline.height(self.groups[i]) for i in self.lent])
            spare = lent.reshape(-1, len(grid)).sum(axis=0)
            return CalleeBytes(timeline.limit.min(axis=0, initial=NO_LIMIT), most.max(axis=0), spare)
        return CalleeBytes(need.min(axis=0), most.max(axis=0), (need - most).min(axis=0))


def sizes_of(columns: CallColumns, profiles: Mapping[str, CallProfile]) -> tuple[Expr, ...]:
    """Return all sizes that a call depends on, the values of what callees depend on included."""
    found = dict.fromkeys({id(size): size for size in columns.sizes}.values())  # most are one object
    found.update(dict.fromkeys(one.size for one in columns.unplanned))
    found.update(dict.fromkeys(one.size for one in columns.path_dependent_bytes))
    known = (call for _, call in columns.calls)
    found.update(dict.fromkeys(c.value(name) for c in known for name in profiles[c.name].symbols))
    return tuple(found)
