"""Fewer distinct offsets: the VM evaluates each distinct expression at every call.

An offset is raised to another one that is in use already, where what lies above leaves the room for it and
the arena does not grow; all buffers at the old offset go along, so that it disappears.  Offsets that are
proved equal are the simplest case.  Constants cost nothing and stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from symalloc.planner.layout.dominance import Dominance
from symalloc.planner.layout.offsets import Alternatives
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.stacking import Stacking
from symalloc.size.expr import Expr

MOST_DISTINCT = 64  # beyond it the pairs to look at cost more than the VM would save


def merge_offsets(
    buffers: Sequence[Buffer],
    stacking: Stacking,
    placed: Sequence[Alternatives],
    arena: Alternatives,
    dominance: Dominance,
) -> list[Alternatives]:
    """Return `placed` with as few distinct offsets as raising whole groups of equal offsets gets to."""
    users = Counter(placed)
    moving = sorted((o for o in users if not _free(o)), key=lambda o: (-_cost(o), users[o], _key(o)))
    if len(moving) > MOST_DISTINCT:
        return list(placed)
    groups = _OffsetGroups(dominance=dominance, arena=arena, rooms=_rooms(buffers, stacking, placed))
    for old in moving:
        others = (new for new in moving if new != old and new not in groups.moved)
        for new in sorted(others, key=lambda o: (-users[o], _key(o))):
            if groups.may_move(old, new):
                groups.moved[old] = new
                users[new] += users[old]
                break
    return [groups.now(offset) for offset in placed]


@dataclass(frozen=True, slots=True)
class _Headroom:
    """A buffer at some offset: its size and alignment, and where one above it lies; None: the arena's end."""

    size: Expr
    alignment: int
    above: Alternatives | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _OffsetGroups:
    """The groups of equal offsets; `moved` says where a group has gone."""

    dominance: Dominance
    arena: Alternatives
    rooms: Mapping[Alternatives, Collection[_Headroom]]
    moved: dict[Alternatives, Alternatives] = field(default_factory=dict)

    def now(self, offset: Alternatives) -> Alternatives:
        while offset in self.moved:
            offset = self.moved[offset]
        return offset

    def may_move(self, old: Alternatives, new: Alternatives) -> bool:
        """Return whether every buffer that is at `old` now may start at `new` instead."""
        members = [o for o in self.rooms if self.now(o) == old]
        return self.below(old, new) and all(self.fits(r, new) for o in members for r in self.rooms[o])

    def fits(self, room: _Headroom, new: Alternatives) -> bool:
        """Return whether the buffer of `room` at `new` is aligned and does not reach the next one."""
        ceiling = self.arena if room.above is None else self.now(room.above)
        aligned = all(self.dominance.align(start, room.alignment) is start for start in new)
        return aligned and self.below(tuple(start + room.size for start in new), ceiling)

    def below(self, low: Alternatives, high: Alternatives) -> bool:
        """Return whether the maximum of `low` is proved to be at most that of `high`."""
        return all(any(self.dominance.reaches(b, a) for b in high) for a in low)


def _rooms(
    buffers: Sequence[Buffer], stacking: Stacking, placed: Sequence[Alternatives]
) -> dict[Alternatives, dict[_Headroom, None]]:
    """Return the limits of the offsets from above, by offset, each limit once."""
    found: dict[Alternatives, dict[_Headroom, None]] = {offset: {} for offset in placed}
    kinds: dict[tuple[Alternatives, Expr, int], int] = {}
    kind_of = [
        kinds.setdefault((offset, b.size, b.alignment), len(kinds))
        for b, offset in zip(buffers, placed, strict=True)
    ]
    meetings = {(kind_of[j], kind_of[i]) for i, below in enumerate(stacking.below) for j in below}
    listed = list(kinds)
    for offset, size, alignment in listed:
        found[offset][_Headroom(size, alignment, None)] = None
    for low, high in sorted(meetings):
        offset, size, alignment = listed[low]
        found[offset][_Headroom(size, alignment, listed[high][0])] = None
    return found


def _free(offset: Alternatives) -> bool:
    return len(offset) == 1 and offset[0].as_constant is not None


def _cost(offset: Alternatives) -> int:
    """Return the cost of evaluating an offset, by the length of its text."""
    return len(_key(offset))


def _key(offset: Alternatives) -> str:
    return ",".join(e.key for e in offset)
