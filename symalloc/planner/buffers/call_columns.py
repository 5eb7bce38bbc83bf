"""The columns of a call: its moments, path after path, and for which of them tensors and arenas are held.

A *column* is a moment at which something begins to live or an If is decided.  Between two of them what is
taken only shrinks.  Nothing here depends on shapes: `CallTimeline` has the bytes at some of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise, repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from symalloc.analysis.liveness import Intervals
from symalloc.planner.buffers.held_sums import HeldColumns, Numbers
from symalloc.planner.buffers.path_lifetimes import CalleeRange, PathLifetimes
from symalloc.planner.buffers.tenant import Tenant
from symalloc.program.control_flow import BlockNesting, ReservationPoint
from symalloc.program.record import from_fields
from symalloc.size.expr import Expr

if TYPE_CHECKING:
    from symalloc.native.native_functions import ColumnsObject

BETWEEN = 2.0**-12  # positions between Ifs that are decided at one
BEHIND = BETWEEN / 2
MANY = 64  # tenants, whose columns are found together


class Held(NamedTuple):
    """The columns [begin, end) of one path during which memory is held."""

    path: int
    begin: int
    end: int


class HeldBytes(NamedTuple):
    """Bytes that are taken while they are held."""

    size: Expr
    held: tuple[Held, ...]


class PathColumns(NamedTuple):
    """The columns [begin, end) of one path; at those of `unknown` nobody knows how much is taken."""

    path: PathLifetimes
    begin: int
    end: int
    unknown: Sequence[Held]


class CallColumns:
    """The columns of tenants (by index) and of arenas of them; `held` has those of each tenant.

    `paths` are those by number: all of the text is not one of them.  `spans` has them all.  `beside` is
    memory that no plan places, and `calls` the columns at which functions of `known` names are called.
    `loose` are tenants that keep memory of their own, for they are live on some paths through a part of the
    text and not on others; `apart` is what all of these may take at once, beside the limit.  `alike`: none of
    the tenants is of another kind than the others, or grounded.  `even`: nothing but tenants is taken, and
    the limit is the same all along each path.
    """

    def __init__(
        self,
        tenants: Sequence[Tenant],
        paths: Sequence[PathLifetimes],
        nesting: BlockNesting,
        known: Container[str],
    ) -> None:
        self.tenants, self.nesting = tenants, nesting
        self.native: ColumnsObject | None = None  # `native_columns` makes it
        self._reserved: dict[tuple[int, ...], tuple[Held, ...]] = {}
        self.paths = [number for number, path in enumerate(paths) if not path.text]
        self.starts: list[list[float]] = []
        self.steps: list[list[int]] = []
        self.offsets = [0]
        self.decided = [_decided(path.steps, path.tested.values()) for path in paths]
        for path, decided in zip(paths, self.decided, strict=True):
            at = _moments(path, tenants) | {moment: branch for branch, moment in decided.items()}
            starts = sorted(at)
            self.starts.append(starts)
            self.steps.append([at[start] for start in starts])
            self.offsets.append(self.offsets[-1] + len(starts))
        self._sorted = [sorted(steps) for steps in self.steps]
        self._latest = [list(accumulate(steps, max)) for steps in self.steps]
        self._begins: dict[ReservationPoint, Sequence[tuple[int, int, int]]] = {}
        self._ends: dict[int, Sequence[int]] = {}
        self._past: dict[tuple[tuple[int, tuple[int, int]], ...], Sequence[int]] = {}
        self._where: dict[int, slice | Numbers] = {}
        self.made, self.held = self._at_once(paths) or (
            [bisect_left(self.steps[0], t.made) for t in tenants],
            [tuple(self._spans(t.number, paths)) for t in tenants],
        )
        self.beside = [
            HeldBytes(u.size, (self._span(number, u.live),))
            for number, path in enumerate(paths)
            for u in path.unplanned
            if u.size is not None
        ]
        self.loose: frozenset[int] = frozenset()
        self.apart: Sequence[HeldBytes] = ()
        self.merged = any(path.merged for path in paths)
        if self.merged:
            self._set_apart(paths[0])
        kinds = {t.fixed for t in tenants if not t.kept}
        self.alike = len(kinds) < 2 and not any(t.grounded for t in tenants)
        self.late = any(t.known >= 0 for t in tenants)
        constants = [t.size.as_constant or 0 for t in tenants if not t.kept]
        self._narrow = any(t.kept and t.least < max(constants, default=0) for t in tenants)
        self.all_known = self.alike and not self.loose and not self.late and not self._narrow
        self.calls = list(self._calls(paths, known))
        self.spans = [
            PathColumns(path, self.offsets[number], self.offsets[number + 1], self._unknown(number, path))
            for number, path in enumerate(paths)
        ]
        unknown = any(span.unknown for span in self.spans)
        self.even = not (self.merged or self.beside or self.calls or unknown)

    def _at_once(self, paths: Sequence[PathLifetimes]) -> tuple[list[int], list[tuple[Held, ...]]] | None:
        """The columns of many tenants, all live on the only path: of their allocations, and those for which
        each is held; None where that is not so.
        """
        path, *others = paths
        lives = [path.lives[t.number] for t in self.tenants]
        if others or path.text or path.merged or path.tested or len(lives) < MANY or not all(lives):
            return None
        begins, ends = [live[0][0] for live in lives], [live[-1][1] - 0.75 for live in lives]
        found = self.held_columns = HeldColumns.between(self.starts[0], begins, ends)
        spans = zip(repeat(0), found.begins.tolist(), found.ends.tolist())
        made = np.searchsorted(self.steps[0], [t.made for t in self.tenants]).tolist()
        return made, [(from_fields(Held, span),) for span in spans]

    def __len__(self) -> int:
        return self.offsets[-1]

    @cached_property
    def held_columns(self) -> HeldColumns:
        """The columns for which each tenant is held, as arrays."""
        return HeldColumns.of(self.held)

    def where(self, i: int) -> slice | Numbers:
        """The columns for which a tenant is held, as an index into arrays."""
        found = self._where.get(i)
        if found is None:
            spans = self.held[i]
            alone = len(spans) == 1
            found = slice(*spans[0][1:]) if alone else np.concatenate([np.arange(*one[1:]) for one in spans])
            self._where[i] = found
        return found

    def _set_apart(self, text: PathLifetimes) -> None:
        """Leave out what lives on some paths through a part of the text and not on others."""
        found = [
            i
            for i, t in enumerate(self.tenants)
            if self._outlives(self.held[i], t.made, text.lives[t.number])
        ]
        lives = [u.live for u in text.unplanned if u.size is not None]
        beside = [
            i
            for i, live in enumerate(lives)
            if self._outlives(self.beside[i].held, text.steps[live[0][0]], live)
        ]
        self.loose = frozenset(found)
        self.apart = [
            *(HeldBytes(self.tenants[i].size, self.held[i]) for i in found),
            *(self.beside[i] for i in beside),
        ]
        for i in found:
            self.held[i] = ()
        for i in beside:
            self.beside[i] = self.beside[i]._replace(held=())

    def _outlives(self, held: Sequence[Held], made: int, live: Intervals) -> bool:
        """Return whether a tensor is live behind the block that it is made in, or in parts of the text."""
        begin, end = self.nesting.reservation((made,)).block
        columns = (step for _, first, last in held for step in self.steps[0][first:last])
        return len(live) > 1 or any(not begin <= step < end for step in columns)

    def _span(self, path: int, live: Intervals, least: float = 0.0) -> Held:
        starts, offset = self.starts[path], self.offsets[path]
        begin, end = live[0][0], max(live[-1][1] - 0.75, least)
        return from_fields(
            Held, (path, offset + bisect_left(starts, begin), offset + bisect_left(starts, end))
        )

    def _spans(self, number: int, paths: Sequence[PathLifetimes]) -> Iterator[Held]:
        for index, path in enumerate(paths):
            if path.text:
                yield from (self._span(index, (interval,)) for interval in path.lives[number])
            elif path.lives[number]:
                branch = path.tested.get(number)
                least = 0.0 if branch is None else self.decided[index][branch] + BEHIND
                yield self._span(index, path.lives[number], least)

    def _unknown(self, number: int, path: PathLifetimes) -> list[Held]:
        return [self._span(number, u.live) for u in path.unplanned if u.size is None]

    def _calls(
        self, paths: Sequence[PathLifetimes], known: Container[str]
    ) -> Iterator[tuple[int, CalleeRange]]:
        for number, path in enumerate(paths):
            for call in path.calls:
                for position in _positions(call.live) if call.name in known else ():
                    yield self.offsets[number] + bisect_left(self.starts[number], position), call

    @property
    def straight(self) -> bool:
        """True where the function does not branch."""
        return not self.nesting.cfg.joins

    # -- arenas --------------------------------------------------------------------------------------------

    def reserved(self, members: Sequence[int]) -> tuple[Held, ...]:
        """The columns for which an arena of the given tenants is there."""
        if len(members) == 1:
            return self.held[members[0]]
        key = tuple(members)
        if key not in self._reserved:
            straight = not self.nesting.cfg.joins
            self._reserved[key] = (self._straight(key),) if straight else tuple(self._reservation(key))
        return self._reserved[key]

    def _straight(self, members: Sequence[int]) -> Held:
        made, held = self.made, self.held
        return Held(0, min([made[i] for i in members]), max([held[i][0].end for i in members]))

    def _reservation(self, members: Sequence[int]) -> Iterator[Held]:
        reservation = self.nesting.reservation([self.tenants[i].made for i in members])
        begins = self._begins.get(reservation)
        if begins is None:
            begins = self._begins[reservation] = list(self._begins_of(reservation))
        ends = [self._ends_of(i) for i in members]
        for place, path, begin in begins:
            end = max([there[place] for there in ends])
            if begin < end:
                yield from_fields(Held, (path, begin, end))

    def _begins_of(self, reservation: ReservationPoint) -> Iterator[tuple[int, int, int]]:
        """Yield the paths on which an arena is reserved, by place and number, and the column it is at."""
        block, point = reservation
        for place, path in enumerate(self.paths):
            if _any_within(self._sorted[path], block):
                yield place, path, self.offsets[path] + bisect_left(self._latest[path], point)

    def extended(self, spans: Sequence[Held], members: Sequence[int], i: int) -> tuple[Held, ...]:
        """The same for `members`, for which an arena is there during `spans`, and one more."""
        if self.nesting.cfg.joins or len(spans) != 1:
            return self.reserved([*members, i])
        ((path, begin, end),) = spans
        return (Held(path, min(begin, self.made[i]), max(end, self.held[i][0].end)),)

    def _ends_of(self, i: int) -> Sequence[int]:
        """The column on each of `paths` up to which an arena is there for a tenant: to its last use, or to
        the If behind which it lies on another path.
        """
        found = self._ends.get(i)
        if found is None:
            there = {path: end for path, _, end in reversed(self.held[i])}
            passed = self._passed(tuple(self.nesting.around(self.tenants[i].made)))
            found = self._ends[i] = [
                there.get(path, end) for path, end in zip(self.paths, passed, strict=True)
            ]
        return found

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

    def possible(self, members: Sequence[int]) -> bool:
        """Return whether the given tenants may share an arena: all sizes are known where it is reserved, and
        they are of one kind.
        """
        if self.all_known or len(members) == 1:
            return True
        if not self.loose.isdisjoint(members) or not (self.alike or self._of_one_kind(members)):
            return False
        return self._known_in_time(members)

    def may_join(self, members: Sequence[int], i: int) -> bool:
        """The same for one more beside `members`, for which it is so, and which are looked at no more than
        they must be.
        """
        if self.all_known:
            return True
        if i in self.loose or members[0] in self.loose:
            return False
        one, other = self.tenants[i], self.tenants[members[0]]
        if other.kept and (one.size.as_constant or 0) > other.least:
            return False
        if not self.alike:
            if (one.grounded, one.fixed) != (other.grounded, other.fixed):
                return False
            if one.grounded and self._any_meets(one.live, members):
                return False
        if not self.late:
            return True
        if not self.nesting.cfg.joins:
            others = (self.tenants[m] for m in members)
            return all(one.known < other.made and other.known < one.made for other in others)
        return self._known_in_time([*members, i])

    def _any_meets(self, live: Intervals, members: Sequence[int]) -> bool:
        """Return whether one of `members` is live at some point of `live`; the last are the likeliest."""
        if not live:
            return False
        first, last = live[0][0], live[-1][1]
        for m in reversed(members):
            other = self.tenants[m].live
            if other and other[0][0] < last and first < other[-1][1] and _meet(live, other):
                return True
        return False

    def _known_in_time(self, members: Sequence[int]) -> bool:
        """Return whether all sizes are known where an arena of the given tenants is reserved."""
        known = max(self.tenants[i].known for i in members)
        return known < 0 or known < self.nesting.reservation(self.tenants[i].made for i in members)[1]

    def _of_one_kind(self, members: Sequence[int]) -> bool:
        """Return whether all the tenants are grounded, and never live at once, or none of them; and whether
        all are of constant size, or none.
        """
        tenants = [self.tenants[i] for i in members]
        if len({(t.grounded, t.fixed) for t in tenants}) > 1:
            return False
        intervals = sorted(one for t in tenants if t.grounded for one in t.live)
        return all(before[1] <= after[0] for before, after in pairwise(intervals))


def _meet(left: Intervals, right: Intervals) -> bool:
    """Return whether some interval of one meets some interval of the other."""
    return any(max(a, c) < min(b, d) for a, b in left for c, d in right)


def bounds_of(spans: Iterable[Held]) -> tuple[int, int]:
    """Return the columns [first, last) that hold `spans`."""
    known = list(spans)
    return min((s.begin for s in known), default=0), max((s.end for s in known), default=0)


def _moments(path: PathLifetimes, tenants: Iterable[Tenant]) -> dict[float, int]:
    """The positions on a path at which something begins, with the program point of each."""
    lives = (
        *(path.lives[t.number] for t in tenants),
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
